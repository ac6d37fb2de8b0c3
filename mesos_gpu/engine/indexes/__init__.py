"""Indexes derived from the state, so that a step need not look at all agents or tasks."""
