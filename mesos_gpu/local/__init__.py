"""A real Apache Mesos 1.11.0 cluster on this machine.

The distribution `mesos.scheduler` 1.11.0 on the Python package index statically links nearly all of
libmesos: master, agent, containerizer, registrar. `fetch` gets it and `patch_elf` mends it for today's
systems; `cxx` calls it; `master`, `agent` and `containerizer` are the programs made of it; `cluster` runs
them, and `platform` adds simulated GPUs and the scheduler.
"""
