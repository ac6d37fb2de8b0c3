"""What /v1 takes and says of running tasks."""
