"""Simulated use of simulated GPUs."""
