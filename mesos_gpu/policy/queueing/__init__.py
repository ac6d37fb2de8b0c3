"""The order of the queue, and delays before a next try."""
