"""Formats that other programs read: metrics and configurations of load balancers."""
