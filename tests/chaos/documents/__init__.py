"""Documents of queues that operators write in chaos."""
