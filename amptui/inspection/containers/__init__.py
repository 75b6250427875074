"""The file formats that hold checkpoints: each module turns the bytes of one into inert nodes."""
