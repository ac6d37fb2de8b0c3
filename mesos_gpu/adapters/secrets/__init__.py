"""Secrets of jobs: stores for their values, and their encrypted delivery to hosts."""
