"""Enclosure of a task: devices, cgroups, and isolation from control ports, other tasks and system calls."""
