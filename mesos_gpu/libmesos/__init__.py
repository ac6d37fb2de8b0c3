"""Apache Mesos 1.11.0, called from Python.

The distribution `mesos.scheduler` 1.11.0 on the Python package index statically links nearly all of libmesos: master,
agent, containerizer, registrar, replicated log, ZooKeeper's client. `fetch` downloads it and `patch_elf` adapts it to
today's systems; `cxx` calls it; `master`, `agent`, `containerizer` and `fetcher` are the programs built on it, and
`helpers` starts them.
"""
