"""What programs of hosts say of themselves."""
