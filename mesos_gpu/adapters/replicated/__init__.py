"""The state of several schedulers of one cluster: each has a file, and follows the one log in ZooKeeper."""
