"""HTTP requests to hosts whose answers are not trusted."""
