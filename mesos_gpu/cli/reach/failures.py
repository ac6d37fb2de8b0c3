"""What may come of asking a scheduler, beside what it says."""

from mesos_gpu.errors import MesosGpuError, Unavailable


class Unreachable(Unavailable):
    """Nothing answers at the address, or what answers is about to end or start."""


class BadAnswer(MesosGpuError):
    """Something answers, and it is not the interface that this client knows (EX_PROTOCOL)."""

    exit_code = 76
