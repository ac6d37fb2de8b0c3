"""Order of the queue, and delays before the next attempt."""
