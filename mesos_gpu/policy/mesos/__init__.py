"""Quotas and weights of Mesos' roles that follow from the tree of queues. Pure."""
