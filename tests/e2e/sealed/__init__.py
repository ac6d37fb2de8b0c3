"""Tests of sandboxes that are sealed after the end of their tasks, with a real Mesos."""
