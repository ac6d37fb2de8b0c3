"""Placement of gangs: rules that compare tasks of one job with each other, and the search for nodes."""
