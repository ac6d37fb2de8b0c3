"""Authentication of requests: a `Prover` for each kind of proof."""
