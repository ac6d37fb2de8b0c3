"""Tasks: one launch of a job, from ACCEPT to its last status update."""
