"""Who may do what, as a scheduler starts with it."""
