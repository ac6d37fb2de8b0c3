"""What brings the platform onto hosts, with a real Mesos."""
