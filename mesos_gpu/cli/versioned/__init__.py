"""Versioned documents: show, compare, apply and roll back."""
