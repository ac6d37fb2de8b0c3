"""Decisions about tasks: cause of an end, gangs, limits, and trust in status updates."""
