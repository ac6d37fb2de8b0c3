"""Local times, and settings of queues that depend on the time of day."""
