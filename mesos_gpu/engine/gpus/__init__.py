"""GPUs over time: history, drains, sharing, and whether each may be granted."""
