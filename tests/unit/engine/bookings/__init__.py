"""Bookings in a bare engine."""
