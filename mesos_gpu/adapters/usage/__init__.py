"""Records of GPU use in SQLite: writing, aggregation by day, and reading for reports."""
