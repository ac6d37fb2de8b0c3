"""What /v1 answers about the cluster as a whole."""
