"""NVIDIA's management library (NVML): reading of cards, and settings of them."""
