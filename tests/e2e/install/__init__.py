"""Installation of the platform on hosts, with a real Mesos."""
