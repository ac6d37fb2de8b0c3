"""Placement in the whole cluster: arrays of nodes and GPUs, and the policies that choose among them."""
