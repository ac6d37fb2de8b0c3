"""Secrets of tasks on their host: keys, exposure to other tasks, and delivery."""
