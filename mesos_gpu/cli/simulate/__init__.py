"""`mesos-gpu simulate`: traces of jobs and requests on a virtual clock."""
