"""Free space of file systems."""
