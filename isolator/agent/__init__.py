"""Clients of the Mesos agent, and the commands that it starts."""
