"""What is done in a task by code of ours: as its user, in its view, and with nothing of what is there but files."""
