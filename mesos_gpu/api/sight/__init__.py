"""What somebody may see, of what several interfaces show."""
