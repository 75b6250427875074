"""The sections of a report: each module turns what a session recorded into blocks."""
