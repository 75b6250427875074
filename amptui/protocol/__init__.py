"""What engine and client say to each other: frozen dataclasses, as JSON lines that keep NaN and infinity."""
