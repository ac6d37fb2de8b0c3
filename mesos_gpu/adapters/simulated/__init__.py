"""Simulated cards: how they are used."""
