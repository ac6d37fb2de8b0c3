"""Commands for apps, deployments and services."""
