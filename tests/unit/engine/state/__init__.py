"""Tests of the engine's state."""
