"""Nodes and cards, listed."""
