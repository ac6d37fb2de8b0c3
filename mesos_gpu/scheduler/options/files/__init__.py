"""Options for users' uploads and webhooks."""
