"""Upload of a directory as a code archive into the scheduler's store."""
