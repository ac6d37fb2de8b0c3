"""A real Apache Mesos 1.11.0 cluster on this machine: `cluster` runs the programs of `mesos_gpu.libmesos`; `stack` adds
simulated GPUs and the scheduler.
"""
