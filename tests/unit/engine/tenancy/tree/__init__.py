"""Tests of the tree of queues in the engine."""
