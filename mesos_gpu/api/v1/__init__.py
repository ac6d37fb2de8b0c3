"""Routes below /v1."""
