"""Simulated use of GPUs."""
