"""Event streams of Mesos masters."""
