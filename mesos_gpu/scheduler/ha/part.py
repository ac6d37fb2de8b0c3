"""What is different about a scheduler that is one of several, to who puts its parts together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.middleware import Middleware

from mesos_gpu.api.peers import Peers
from mesos_gpu.ports import Store

#: The exit status of who led, and leads no more (EX_TEMPFAIL): started anew it stands by.
DEPOSED: Final = 75


@dataclass(frozen=True, slots=True)
class Part:
    """The leader's.

    Attributes:
        store: Its state, to which it alone may add.
        key: What secrets of launches are made of.
        peers: The others.
        url: Where others reach it.
        outer: What requests pass first.
        is_over: Whether it leads no more.
    """

    store: Store
    key: bytes
    peers: Peers
    url: str
    outer: Sequence[Middleware]
    is_over: Callable[[], bool]
