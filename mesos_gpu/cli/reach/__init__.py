"""Connections of commands to the scheduler: address, TLS, credentials and errors."""
