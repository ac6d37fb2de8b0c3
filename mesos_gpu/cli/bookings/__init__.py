"""Commands for bookings."""
