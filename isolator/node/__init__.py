"""The node monitor, and the reaper of what dead owners left."""
