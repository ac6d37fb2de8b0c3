"""What /metrics shows: samples of the state, and what the scheduler counts and times of itself."""
