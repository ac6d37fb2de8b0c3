"""Quota and fair share of the queues of a pool: order, limits, reclaim, budgets, accounts. Pure functions."""
