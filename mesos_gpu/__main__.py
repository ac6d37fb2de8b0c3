"""`python -m mesos_gpu` is `mesos-gpu`."""

from mesos_gpu.start import main

main()
