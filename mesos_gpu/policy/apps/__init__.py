"""Decisions about apps: what an instance runs, its ports, health checks and traffic."""
