"""Which nodes are meant."""
