"""Bookings, without a store and without a network."""
