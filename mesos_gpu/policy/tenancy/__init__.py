"""Shares of a pool that many queues have together: use, order, limits, reclaim, budgets, accounts. Pure."""
