"""NVML without a card."""
