"""Webhooks: a store of hooks and waiting deliveries, and a sender of signed requests."""
