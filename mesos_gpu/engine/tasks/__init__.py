"""Life of tasks: status updates, gangs, notices, evictions, resizes, volumes, and tasks that the state does not know."""
