"""Parts of the engine's state by subject; each keeps its own indexes up to date."""
