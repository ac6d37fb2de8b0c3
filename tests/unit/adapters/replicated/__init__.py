"""State that several schedulers share."""
