"""Adapters to the outside: Mesos, NVML, SQLite, TLS, other hosts, files and the clock."""
