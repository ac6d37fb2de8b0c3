"""The platform of an earlier commit, and this one after it, or before it."""
