"""Preemption: room that running jobs make for jobs that wait, its plans, and its victims."""
