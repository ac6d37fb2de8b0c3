"""One file for each thing outside: Mesos, NVML, SQLite, the clock."""
