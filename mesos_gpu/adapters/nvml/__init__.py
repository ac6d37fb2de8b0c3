"""NVIDIA's management library: what it says of cards, and what it is told to do with them."""
