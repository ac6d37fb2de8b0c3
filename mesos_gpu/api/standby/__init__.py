"""What a scheduler that stands by answers itself, and what it passes on to the one that leads."""
