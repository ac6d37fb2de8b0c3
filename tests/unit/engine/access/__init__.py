"""Who may do what, as the engine keeps it."""
