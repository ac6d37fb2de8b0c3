"""One pool for many queues: shares, use, order, limits, reclaim, budgets, accounts. Pure."""
