"""Several schedulers, with a real Mesos and a real ZooKeeper."""
