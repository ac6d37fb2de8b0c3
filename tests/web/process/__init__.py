"""The browser as a process."""
