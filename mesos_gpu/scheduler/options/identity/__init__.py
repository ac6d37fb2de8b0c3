"""Options for identity providers."""
