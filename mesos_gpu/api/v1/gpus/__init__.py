"""GPUs as JSON."""
