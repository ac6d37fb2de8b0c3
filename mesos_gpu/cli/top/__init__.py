"""`mesos-gpu top`: what cards, nodes, tasks and the queue do, drawn again and again."""
