"""Messages about programs and tasks on hosts."""
