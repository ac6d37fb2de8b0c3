"""Apps as /v1 has them: templates to start from."""
