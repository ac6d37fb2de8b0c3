"""The executor: one for each task."""
