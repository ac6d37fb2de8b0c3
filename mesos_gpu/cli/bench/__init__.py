"""`mesos-gpu bench`: what the platform takes, measured on this machine."""
