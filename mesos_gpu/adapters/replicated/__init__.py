"""Replicated state of several schedulers: each has its own file, and follows one log in ZooKeeper."""
