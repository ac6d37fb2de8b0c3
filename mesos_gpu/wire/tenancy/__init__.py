"""JSON of the queue document and of bookings."""
