"""Job arrays: their indexes and the state of their tasks."""
