"""Nodes: agents, their GPUs, drivers, offers and drains."""
