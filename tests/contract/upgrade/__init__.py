"""What an upgrade is told."""
