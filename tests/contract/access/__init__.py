"""Who may do what, over the REST interface."""
