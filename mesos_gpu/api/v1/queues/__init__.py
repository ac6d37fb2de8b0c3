"""The tree of queues: its document, its queues each for itself, and what a change would do."""
