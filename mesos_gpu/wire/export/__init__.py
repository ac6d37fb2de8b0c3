"""Output formats for other programs: metrics, configurations of load balancers, and webhooks."""
