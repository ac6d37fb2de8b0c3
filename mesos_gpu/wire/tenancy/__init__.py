"""The document of the tree of queues as JSON."""
