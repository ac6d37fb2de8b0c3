"""Tunnel of many connections over one byte stream, for connections into a task."""
