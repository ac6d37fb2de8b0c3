"""`python -m mesos_gpu` is `mesos-gpu`."""

from mesos_gpu.cli import main

main(prog_name="mesos-gpu")
