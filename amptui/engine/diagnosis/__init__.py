"""Why it failed: traced replays of a failing iteration or case, and what they say as findings."""
