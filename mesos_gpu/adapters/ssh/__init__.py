"""Other hosts, by OpenSSH."""
