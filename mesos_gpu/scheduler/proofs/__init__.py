"""Proofs of a name, as the command line says: which are taken, and what takes them."""
