"""Bookings: GPUs that a queue has from one time to another."""
