"""Jobs as people write them in files."""
