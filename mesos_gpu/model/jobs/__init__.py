"""Jobs: requests, users, queue order, and reasons why a job waits."""
