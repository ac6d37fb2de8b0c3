"""Space of file systems."""
