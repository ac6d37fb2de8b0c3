"""Decisions about cards: health and its history, utilization, and drivers that images need."""
