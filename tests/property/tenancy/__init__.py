"""Queues, guarantees and limits."""
