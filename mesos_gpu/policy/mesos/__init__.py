"""What the tree of queues comes to in Mesos' own quotas, weights and reservations. Pure."""
