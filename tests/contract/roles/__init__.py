"""The tree of queues over REST and at the command line, against a real scheduler."""
