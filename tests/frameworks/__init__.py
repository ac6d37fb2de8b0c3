"""Frameworks beside ours, on the same master."""
