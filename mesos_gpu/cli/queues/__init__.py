"""`mesos-gpu queue`: pending jobs, and the tree of queues."""
