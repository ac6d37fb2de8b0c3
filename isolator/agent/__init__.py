"""Clients of the Mesos agent and of the host's Docker Engine, and the commands that the agent starts."""
