"""What routes say of GPUs, as types."""
