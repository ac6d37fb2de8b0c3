"""Marathon 1.11's JSON: apps and groups, read, checked and printed. Pure."""
