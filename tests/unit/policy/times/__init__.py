"""Tests of times of day."""
