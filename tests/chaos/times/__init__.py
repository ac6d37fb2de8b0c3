"""Hours of queues: figures in force at a given time."""
