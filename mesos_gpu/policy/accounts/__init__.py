"""Accounting of GPU use by owner and queue, and budgets. Pure functions."""
