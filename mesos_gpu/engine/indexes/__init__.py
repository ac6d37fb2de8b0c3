"""What follows from the state, kept so that a step need not look at all agents or tasks."""
