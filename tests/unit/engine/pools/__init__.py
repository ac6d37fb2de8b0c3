"""Tests of pools in the engine."""
