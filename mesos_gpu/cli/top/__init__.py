"""`mesos-gpu top`: live views of GPUs, nodes, tasks and the queue."""
