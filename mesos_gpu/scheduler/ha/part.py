"""Additional inputs of a scheduler that leads as one of several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.middleware import Middleware

from mesos_gpu.api.peers import Peers
from mesos_gpu.ports import Store

#: Exit status of a deposed leader (EX_TEMPFAIL): when it is restarted, it stands by.
DEPOSED: Final = 75


@dataclass(frozen=True, slots=True)
class Part:
    """Leader-specific inputs.

    Attributes:
        store: Replicated store, to which only the leader writes.
        key: Key from which launch secrets are derived.
        peers: The other schedulers.
        url: URL at which others reach this scheduler.
        outer: Outermost middlewares of the REST interface.
        is_over: Function that returns whether this scheduler no longer leads.
    """

    store: Store
    key: bytes
    peers: Peers
    url: str
    outer: Sequence[Middleware]
    is_over: Callable[[], bool]
