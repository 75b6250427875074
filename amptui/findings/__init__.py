"""From evidence to findings and verdicts: pure functions on plain values. Knows no torch and does no I/O."""
