"""Selection of nodes by attributes, and levels of the fabric."""
