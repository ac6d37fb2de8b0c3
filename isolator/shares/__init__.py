"""What a host does for shares of its GPUs."""
