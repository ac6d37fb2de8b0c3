"""Messages of each wire, as bytes and as nouns."""
