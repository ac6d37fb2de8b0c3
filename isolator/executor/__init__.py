"""Executor: the process that runs one task on a host."""
