"""Benchmarks of what teams share: reports of use, idle GPUs."""
