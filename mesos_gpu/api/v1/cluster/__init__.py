"""Lists of nodes and GPUs."""
