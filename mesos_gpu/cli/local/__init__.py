"""`mesos-gpu up` and `mesos-gpu down`: a cluster on this machine."""
