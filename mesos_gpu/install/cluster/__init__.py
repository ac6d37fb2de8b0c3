"""Installation of a cluster over SSH: a file describes the hosts, a plan lists what each needs, `apply` does it."""
