"""Who asks, and what an operator has written down about who may do what."""
