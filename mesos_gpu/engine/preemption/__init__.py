"""The planner of room: victims and their cost, candidate nodes, plans for waiting jobs and bookings, and notices."""
