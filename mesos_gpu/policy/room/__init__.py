"""Room for a blocked job: reservations, preemption, and plans of moves."""
