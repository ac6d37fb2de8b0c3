"""Tests of the choice of nodes for bookings."""
