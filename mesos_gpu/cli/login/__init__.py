"""Who one is, to which scheduler: commands."""
