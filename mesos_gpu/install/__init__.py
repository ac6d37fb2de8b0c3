"""What brings the platform onto hosts: the archive of the programs of GPU hosts, services of systemd."""
