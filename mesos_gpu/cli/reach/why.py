"""Why a request had no answer."""

import requests

from mesos_gpu.adapters.tls.session import causes
from mesos_gpu.adapters.tls.trust import ENDED


def refused(err: BaseException) -> bool:
    """Whether nothing listens there."""
    return any(isinstance(cause, ConnectionRefusedError) for cause in causes(err))


def closed(err: BaseException) -> bool:
    """Whether a connection was made, and ended by the other side."""
    return not refused(err) and any(isinstance(cause, (ConnectionError, *ENDED)) for cause in causes(err))


def reason_of(err: BaseException) -> str:
    """In a few words."""
    if isinstance(err, (requests.Timeout, TimeoutError)):
        return "no answer in time"
    for cause in causes(err):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return "the connection broke"
