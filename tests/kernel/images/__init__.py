"""Images that executors run themselves: layers, the store of layers, and tasks."""
