"""Syntax of job files."""
