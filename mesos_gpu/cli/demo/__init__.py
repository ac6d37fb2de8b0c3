"""`mesos-gpu demo`."""
