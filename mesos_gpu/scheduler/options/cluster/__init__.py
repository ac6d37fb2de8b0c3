"""Options for several schedulers of one cluster."""
