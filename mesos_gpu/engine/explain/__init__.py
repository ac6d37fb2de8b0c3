"""Explanations of what a match would do, for readers. They do not change the state."""
