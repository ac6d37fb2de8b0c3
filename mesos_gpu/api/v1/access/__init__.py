"""Routes of access documents and tokens."""
