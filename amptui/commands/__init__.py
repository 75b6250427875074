"""What each command does with its parsed arguments: one exit code, one message for what kept it from its work."""
