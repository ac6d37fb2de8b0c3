"""Room on nodes: what launches take, what is kept for jobs, what no node has."""
