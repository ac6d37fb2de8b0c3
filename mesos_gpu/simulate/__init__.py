"""Simulation of the platform without a cluster: the real policies and the real engine on a virtual clock."""
