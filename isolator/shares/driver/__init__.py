"""NVML operations for shares: memory limits by cgroup, and MIG instances."""
