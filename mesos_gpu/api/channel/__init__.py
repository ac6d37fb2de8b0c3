"""Channels into tasks: opening them, and connecting a client with the executor of a task."""
