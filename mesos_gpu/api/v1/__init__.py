"""The routes below /v1."""
