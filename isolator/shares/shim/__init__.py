"""Our libcuda.so.1 and libnvidia-ml.so.1, loaded before the driver's, for tasks that have a share of a card."""
