"""Commands that stay with a job, or serve it here."""
