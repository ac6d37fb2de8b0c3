"""Functions that read the state for users: each takes a view, and changes nothing."""
