"""Job arrays: their indexes, and how far their tasks are."""
