"""The REST interface and the dashboard."""
