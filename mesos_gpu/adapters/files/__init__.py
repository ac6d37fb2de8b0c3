"""Files of users and operators: documents, and secrets that others must not read."""
