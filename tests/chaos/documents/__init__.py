"""Acts that write documents of queues and bookings."""
