"""Clusters on hosts of their own: the file, the plan, what is sent."""
