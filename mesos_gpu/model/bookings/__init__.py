"""Bookings: GPUs reserved for a queue from one time to another."""
