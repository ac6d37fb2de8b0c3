"""Files that people write: documents, and secrets that nobody else may read."""
