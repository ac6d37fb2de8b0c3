"""What happens, as it follows from what is saved."""
