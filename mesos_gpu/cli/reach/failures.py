"""Errors of requests without a usable answer."""

from mesos_gpu.errors import MesosGpuError, Unavailable


class Unreachable(Unavailable):
    """The server does not answer, or is about to stop or start."""


class BadAnswer(MesosGpuError):
    """The server's answer is not that of the interface (EX_PROTOCOL)."""

    exit_code = 76
