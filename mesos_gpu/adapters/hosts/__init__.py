"""HTTP requests to hosts whose responses are not trusted."""
