"""Who may see and change which apps."""
