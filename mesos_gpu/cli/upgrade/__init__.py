"""Upgrades of the platform."""
