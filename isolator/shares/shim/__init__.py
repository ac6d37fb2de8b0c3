"""A libcuda.so.1 and a libnvidia-ml.so.1 of ours before the driver's, for tasks that have a share of a card."""
