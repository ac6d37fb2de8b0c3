"""Matching of held offers with pending jobs: placement, launches, and the offers that are given back or requested."""
