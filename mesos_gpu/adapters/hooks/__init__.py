"""Webhooks: what is to be sent, kept in a file of its own, and how it is sent."""
