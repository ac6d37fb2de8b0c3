"""Decisions about cards: their health, its history, drivers that images need."""
