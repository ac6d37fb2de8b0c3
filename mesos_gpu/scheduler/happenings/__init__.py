"""What happens, for whoever listens: it is kept with the state that it follows from."""
