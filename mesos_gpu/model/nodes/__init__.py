"""Nodes: agents with their GPUs, drivers, offers and drains."""
