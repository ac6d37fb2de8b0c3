"""Commands for access rules and tokens."""
