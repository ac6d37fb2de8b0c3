"""Bytes and JSON to nouns and back. Pure."""
