"""What of the scheduler's command line is about files of submitters."""
