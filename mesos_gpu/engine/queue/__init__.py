"""The queue of jobs: its order, its limits, and its view for readers."""
