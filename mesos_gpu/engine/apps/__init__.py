"""Apps: their instances, deployments, delays, and services."""
