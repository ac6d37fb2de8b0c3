"""Calls of a Mesos master's operator API, and its answers."""
