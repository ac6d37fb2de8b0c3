"""The driver volume: the NVIDIA libraries of a host as a versioned, read-only directory."""
