"""Frames, calls and orders of channels."""
