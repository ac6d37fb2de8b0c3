"""Bookings as the queue and tasks meet them."""
