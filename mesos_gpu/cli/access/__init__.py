"""Who may do what, and tokens: commands."""
