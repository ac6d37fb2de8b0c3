"""Commands for the host on which they run."""
