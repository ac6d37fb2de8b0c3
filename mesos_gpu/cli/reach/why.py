"""Errors for requests without an answer."""

import requests

from mesos_gpu.adapters.tls.session import causes
from mesos_gpu.adapters.tls.trust import ENDED
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach.failures import Unreachable
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.cli.reach.trouble import CLOSED_REMEDY, of_tls
from mesos_gpu.errors import MesosGpuError


def unanswered(reach: Reach, err: Exception, remedy: str = "") -> MesosGpuError:
    """Return the error for a request without an answer; `remedy` applies if the request may have arrived."""
    distrust = of_tls(reach, causes(err)) if reach.is_tls else None
    if distrust is not None:
        return distrust
    what = f"the scheduler at {reach.url} does not answer ({reason_of(err)})"
    lost = not isinstance(err, requests.ConnectTimeout) and not refused(err)
    if lost and remedy:
        return Unreachable(what, remedy=remedy)
    was_closed = reach.is_tls and closed(err)
    return Unreachable(what, remedy=CLOSED_REMEDY if was_closed else REMEDY)


def refused(err: BaseException) -> bool:
    """Return whether the connection was refused, because nothing listens there."""
    return any(isinstance(cause, ConnectionRefusedError) for cause in causes(err))


def closed(err: BaseException) -> bool:
    """Return whether a connection was established, and closed by the other side."""
    return not refused(err) and any(isinstance(cause, (ConnectionError, *ENDED)) for cause in causes(err))


def reason_of(err: BaseException) -> str:
    """Return a short reason."""
    if isinstance(err, (requests.Timeout, TimeoutError)):
        return "no answer in time"
    for cause in causes(err):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return "the connection broke"
