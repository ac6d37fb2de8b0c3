"""Protocol of channels into tasks, and calls of executors to them."""
