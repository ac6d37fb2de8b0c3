"""Random load and random faults on a cluster of hosts in network namespaces: `python -m tests.soak`.

Judged by what the kernel, Mesos and the tasks themselves say.
"""
