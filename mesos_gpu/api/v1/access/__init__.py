"""Who may do what, and tokens, over REST."""
