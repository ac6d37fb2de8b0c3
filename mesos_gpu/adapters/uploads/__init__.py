"""Archives of code that users upload for their jobs."""
