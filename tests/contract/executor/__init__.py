"""What an executor does in its task's sandbox and with its checks, as a process."""
