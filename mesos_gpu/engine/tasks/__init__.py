"""Life of tasks: status updates, gangs, notices, evictions, resizes, volumes, and tasks unknown to the state."""
