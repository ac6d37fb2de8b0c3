"""Commands for development: a local cluster, the demo, simulations."""
