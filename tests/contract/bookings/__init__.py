"""Bookings over REST and on the command line."""
