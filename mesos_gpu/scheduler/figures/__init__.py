"""Metrics and timings of the scheduler's engine."""
