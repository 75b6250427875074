"""What is written down about a session: for a terminal, as JSON, as Markdown and HTML, as code to paste."""
