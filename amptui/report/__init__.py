"""What amptui hands over: Markdown, HTML, JSON, printed pages, the code to paste."""
