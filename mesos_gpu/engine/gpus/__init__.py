"""Cards over time: their history, their drains, whether each can be granted."""
