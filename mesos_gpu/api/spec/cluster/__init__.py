"""Types of requests and answers about the cluster as a whole."""
