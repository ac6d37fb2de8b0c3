"""Ports that command a cluster."""
