"""Who may do what, and tokens, as JSON."""
