"""Metrics of /metrics: samples of the state, and counters and timers of the scheduler itself."""
