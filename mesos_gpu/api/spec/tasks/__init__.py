"""Types of requests and answers about tasks."""
