"""Who may do what: properties."""
