"""Commands that follow a job, or open a local URL to it."""
