"""Visibility: what a caller may see of jobs, apps, queues and events, for several interfaces."""
