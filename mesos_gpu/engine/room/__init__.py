"""Room on nodes: resources of launches, reservations of jobs, and requests that no node can serve."""
