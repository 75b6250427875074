"""What a policy gains in time and memory, measured without any diagnostics."""
