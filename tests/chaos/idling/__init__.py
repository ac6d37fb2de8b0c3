"""GPUs that idle and wake in chaos."""
