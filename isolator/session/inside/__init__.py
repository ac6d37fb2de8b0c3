"""What code of ours does inside a task: as its user and in its view; no program of the task is run for it."""
