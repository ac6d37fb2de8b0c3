"""Commands for the host on which they run, and for installing hosts."""
