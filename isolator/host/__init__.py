"""The host: its paths, control ports, users, processes, and the sandboxes that root opens."""
