"""Archives of code that submitters send along with their jobs."""
