"""A pool that several teams share, on the dashboard."""
