"""Access rules and tokens at the start of the scheduler."""
