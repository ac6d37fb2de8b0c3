"""Installation of the platform on hosts: the archive of GPU hosts' programs, systemd services, and clusters."""
