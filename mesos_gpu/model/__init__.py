"""Domain types of the platform: data and pure functions, which read no clock and no file."""
