"""Types of answers about GPUs."""
