"""Rollout of a deployment: order of steps (`plan`), next actions (`moves`), fate of unreachable instances (`pace`)."""
