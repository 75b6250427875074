"""Pictures as data: pure functions from values to lines of styled text, standard library only."""
