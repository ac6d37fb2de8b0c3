"""GPUs that do nothing."""
