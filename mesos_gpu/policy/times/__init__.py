"""Times of day, of places."""
