"""Access documents and tokens in the engine."""
