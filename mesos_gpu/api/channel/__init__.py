"""Channels into tasks: how one is opened, and how the two that meet at it are put together."""
