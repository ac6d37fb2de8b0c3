"""What was used, put down to whom it is due, and what budgets have left. Pure."""
