"""Hours of queues in chaos: what holds at a moment."""
