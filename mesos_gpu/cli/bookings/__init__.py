"""Commands about bookings."""
