"""A directory of the user's as an archive in the scheduler's store."""
