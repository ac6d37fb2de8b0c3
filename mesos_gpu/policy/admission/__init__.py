"""What is refused, and what must wait though there were room."""
