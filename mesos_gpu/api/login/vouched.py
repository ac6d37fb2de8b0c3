"""Callers whom another scheduler of this cluster vouches for: it has seen what cannot be passed on."""

from collections.abc import Sequence
from typing import Final

from starlette.types import Scope

from mesos_gpu.model.access.caller import Caller, Proof

#: What a connection proves, and a request that is passed on does not.
OF_CONNECTIONS: Final = (Proof.SOCKET, Proof.CERTIFICATE, Proof.PROXY)
_EXTENSION: Final = "mesos_gpu.vouched"


def extension(callers: Sequence[Caller]) -> dict[str, dict[object, object]]:
    """What an ASGI scope says of them, as its `extensions`."""
    return {_EXTENSION: {"callers": tuple(callers)}}


def vouched_in(scope: Scope) -> Sequence[Caller]:
    """Callers that another scheduler vouches for."""
    told = (scope.get("extensions") or {}).get(_EXTENSION)
    return tuple(told["callers"]) if isinstance(told, dict) else ()
