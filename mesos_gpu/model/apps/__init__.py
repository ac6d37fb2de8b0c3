"""Apps, deployments and services."""
