"""Commands of users beside a running task's own: `mesos-gpu exec`."""
