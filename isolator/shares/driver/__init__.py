"""What NVML is told for a share: memory limits of its cgroup, and the MIG instance that it is."""
