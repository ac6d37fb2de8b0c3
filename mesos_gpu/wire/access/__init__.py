"""JSON of access documents, access checks and tokens."""
