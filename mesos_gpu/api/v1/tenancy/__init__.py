"""Routes of usage, budgets, bookings, history, events and webhooks."""
