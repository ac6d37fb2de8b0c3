"""Benchmarks of bookings, reports of use, and idle GPUs."""
