"""Explanations of why a job waits, and estimates of when it starts."""
