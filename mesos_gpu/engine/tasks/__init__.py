"""Tasks that run: their status updates, gangs, evictions, and tasks that the state does not know."""
