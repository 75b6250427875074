"""A recorded trial's policy as plain PyTorch code for the user's own training loop."""
