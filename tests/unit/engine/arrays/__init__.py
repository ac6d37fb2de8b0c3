"""Tests of job arrays in the engine."""
