"""Ways to run a task: a host process, an image by the executor, a nested container, a container of Docker Engine."""
