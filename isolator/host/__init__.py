"""Facts and tools of the host: paths, control ports, users, processes, and safe access to sandboxes."""
