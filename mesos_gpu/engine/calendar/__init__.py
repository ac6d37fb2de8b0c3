"""Bookings as the queue order and tasks depend on them."""
