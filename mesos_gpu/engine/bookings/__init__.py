"""Bookings: what may be booked, which nodes are chosen, and what begins and ends by the clock."""
