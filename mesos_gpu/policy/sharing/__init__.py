"""Enforcement of GPU shares: methods, time windows, percentages. Pure functions."""
