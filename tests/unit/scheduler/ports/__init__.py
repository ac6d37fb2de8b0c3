"""Which ports command a cluster."""
