"""Metrics, and where Prometheus finds them."""
