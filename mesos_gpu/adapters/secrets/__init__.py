"""Secrets of jobs: where their values are kept, and how these leave the scheduler."""
