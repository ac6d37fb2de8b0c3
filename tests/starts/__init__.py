"""How schedulers of tests are started in less time."""
