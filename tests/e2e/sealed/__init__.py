"""Sandboxes that are sealed at the end of their tasks, with a real Mesos."""
