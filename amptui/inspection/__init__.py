"""Reading what a checkpoint holds without torch and without running anything in it."""
