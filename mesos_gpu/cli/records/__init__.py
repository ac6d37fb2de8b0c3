"""Commands for records: audit log, events, history, budgets, reports and webhooks."""
