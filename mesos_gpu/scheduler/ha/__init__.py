"""Several schedulers of one cluster: one leads, the others stand by and take its place."""
