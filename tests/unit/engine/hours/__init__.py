"""Tests of the hours of queues in the engine."""
