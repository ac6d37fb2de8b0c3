"""Tests of journals of the engine."""
