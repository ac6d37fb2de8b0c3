"""How shares of GPUs are enforced: methods, time windows, percentages. Pure."""
