"""Parts of the engine's state by what they are about; each keeps its own indexes true."""
