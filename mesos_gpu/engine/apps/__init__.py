"""Apps: instances, deployments, launch delays, and services."""
