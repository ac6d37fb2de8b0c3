"""`mesos-gpu queue`: what waits, and the tree of queues."""
