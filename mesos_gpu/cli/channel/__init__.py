"""Commands that reach into running jobs."""
