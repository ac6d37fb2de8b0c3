"""What keeps a task from control ports, other tasks and system calls that it must not make."""
