"""Access rights in the state: versions of the access document, and tokens."""
