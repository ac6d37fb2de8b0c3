"""What the scheduler counts and times of itself."""
