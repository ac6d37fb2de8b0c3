"""Bookings: local times, and the test whether more can be booked."""
