"""Routes of the tree of queues: its document, single queues, shares, and effects of changes."""
