"""Sections of the command line that several schedulers of one cluster need."""
