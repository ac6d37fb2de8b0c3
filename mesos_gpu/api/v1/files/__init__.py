"""Routes of users' files: archives that are uploaded for jobs, and named volumes."""
