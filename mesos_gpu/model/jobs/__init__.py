"""Jobs: requests, users, the queue, and why a job waits."""
