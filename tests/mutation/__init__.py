"""Mutation testing: what it is, and its commands, are in `__main__.py`."""
