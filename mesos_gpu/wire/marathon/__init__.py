"""Marathon 1.11's JSON of apps and groups: parsing, checks and output; pure functions."""
