"""Decisions: pure functions from what is known to what should happen."""
