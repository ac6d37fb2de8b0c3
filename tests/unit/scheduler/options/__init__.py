"""Tests of options of the scheduler."""
