"""Masters, agents and hosts of a real Mesos, and commands that set them up."""
