"""Devices that a task may use: what the driver of this host has, rules, cgroups, eBPF, and the task's /dev."""
