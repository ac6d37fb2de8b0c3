"""Secrets of tasks on their host: its keys, who could read them, and how tasks get them."""
