"""A double of NVML, NVIDIA's library for facts of GPUs."""
