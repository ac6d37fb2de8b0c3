"""Shares of GPUs: offers of cards, requests, assigned shares and their guarantees."""
