"""The screen of `amptui inspect`: one checkpoint looked into, or two and what happened between them."""
