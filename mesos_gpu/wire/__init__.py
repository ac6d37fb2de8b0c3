"""Conversion of domain types to and from bytes and JSON; pure functions."""
