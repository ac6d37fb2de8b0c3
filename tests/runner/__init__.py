"""The runner of the tests: tiers, workers, budgets, second tries."""
