"""NVIDIA's Multi-Process Service: a daemon for each card and user, and what its tasks get."""
