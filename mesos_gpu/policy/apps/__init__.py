"""Decisions about apps: the job of an instance, ports, health checks and traffic. Pure functions."""
