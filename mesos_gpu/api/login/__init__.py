"""Identification of callers by proofs in their order, sessions of browsers, and the log-in page."""
