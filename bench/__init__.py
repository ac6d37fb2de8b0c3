"""Benchmarks of the platform on this machine: `python -m bench`."""
