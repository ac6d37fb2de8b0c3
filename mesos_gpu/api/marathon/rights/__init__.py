"""Rights for apps: changes of the tree of apps, and events."""
