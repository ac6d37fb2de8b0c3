"""What goes over a channel into a task, and how its executor is called to it."""
