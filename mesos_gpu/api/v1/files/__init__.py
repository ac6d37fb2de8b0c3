"""Files of submitters: what they send along with jobs."""
