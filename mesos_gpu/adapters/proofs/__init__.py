"""Proofs of who sends a request, a module for each kind."""
