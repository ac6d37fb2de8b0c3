"""Several schedulers, without a Mesos: what one that stands by does, and what commands do with several."""
