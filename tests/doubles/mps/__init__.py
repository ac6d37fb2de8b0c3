"""A double of NVIDIA's Multi-Process Service."""
