"""Commands for the cluster: GPUs, nodes, plans, backups."""
