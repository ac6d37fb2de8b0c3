"""Persistent volumes: directories below an operator's root, one for each volume."""
