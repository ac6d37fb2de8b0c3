"""Calls of the operator's API of a master, and what it answers."""
