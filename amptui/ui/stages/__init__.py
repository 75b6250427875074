"""The stages of a session, one file each: pure functions from the session to values, and thin containers of panes."""
