"""Sessions: commands of users beside a running task's own, such as `mesos-gpu exec`."""
