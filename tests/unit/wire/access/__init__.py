"""Access documents and tokens as JSON."""
