"""What is outside, a file for each: Mesos, NVML, SQLite, the clock."""
