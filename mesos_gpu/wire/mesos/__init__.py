"""Messages to and from Mesos, executors and node monitors."""
