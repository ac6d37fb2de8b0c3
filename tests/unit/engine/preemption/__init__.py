"""Tests of GPUs that are reclaimed."""
