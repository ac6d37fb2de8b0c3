"""Audit log in files of one directory: writing, searching and verifying."""
