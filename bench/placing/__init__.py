"""Benchmarks of placement: policies, and levels of a network fabric."""
