"""What brings the platform onto hosts."""
