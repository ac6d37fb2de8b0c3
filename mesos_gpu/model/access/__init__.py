"""Callers of the interface, and the document of their rights."""
