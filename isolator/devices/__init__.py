"""Devices that a task may use: rules, cgroups, eBPF, and its /dev."""
