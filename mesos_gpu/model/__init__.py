"""Nouns: what the platform speaks about. No behaviour that reads a clock or a file."""
