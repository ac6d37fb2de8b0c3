"""The enclosure of a task: devices, cgroups, and what keeps it from control ports, other tasks and system calls."""
