"""Room for a job that is blocked: reservations, preemption, plans of moves."""
