"""Conversion of programs and utilization of GPUs to JSON."""
