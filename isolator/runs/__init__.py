"""Ways to run a task: a host process, a nested container, a container of Docker Engine."""
