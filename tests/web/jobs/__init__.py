"""Lists of jobs on the dashboard."""
