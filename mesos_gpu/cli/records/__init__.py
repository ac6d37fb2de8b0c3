"""What is on record: the audit log, and who changed a job or a GPU."""
