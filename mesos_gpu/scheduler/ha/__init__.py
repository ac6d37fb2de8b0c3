"""Several schedulers of one cluster: one leads, the others are standbys that can take over."""
