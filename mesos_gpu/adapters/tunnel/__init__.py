"""Connections over one stream of bytes, as it leads into a task."""
