"""Sections about who callers are, by what others say of them."""
