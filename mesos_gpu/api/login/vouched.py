"""Callers whose identity another scheduler states, as a forwarded request cannot carry proofs of its connection."""

from collections.abc import Sequence
from typing import Final

from starlette.types import Scope

from mesos_gpu.model.access.caller import Caller, Proof

#: Proofs that belong to a connection, and are lost when a request is forwarded.
OF_CONNECTIONS: Final = (Proof.SOCKET, Proof.CERTIFICATE, Proof.PROXY)
_EXTENSION: Final = "mesos_gpu.vouched"


def extension(callers: Sequence[Caller]) -> dict[str, dict[object, object]]:
    """Return ASGI extensions that name the callers."""
    return {_EXTENSION: {"callers": tuple(callers)}}


def vouched_in(scope: Scope) -> Sequence[Caller]:
    """Return the callers whose identity another scheduler states."""
    entry = (scope.get("extensions") or {}).get(_EXTENSION)
    return tuple(entry["callers"]) if isinstance(entry, dict) else ()
