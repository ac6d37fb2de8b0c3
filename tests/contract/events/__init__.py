"""What happens: told over the interface and on the command line, and to hooks."""
