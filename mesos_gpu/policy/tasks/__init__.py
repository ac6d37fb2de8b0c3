"""Decisions about tasks: who is to blame for an end, gangs, limits, trust in reports."""
