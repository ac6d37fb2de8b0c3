"""JSON of assignments, in TaskInfo.data, and of outcomes, in the data of the last status update.

The executor imports this module, so it uses only the standard library's json.
"""

import json
from enum import Enum
from typing import TYPE_CHECKING, Any

from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.driver import version_of
from mesos_gpu.model.nodes.wires import OLDEST, SILENT, WIRE, spoken
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.body import parsed

__all__ = ["Assignment", "OtherWire", "Outcome", "decode_assignment", "decode_outcome", "encode"]

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

VERSION = 1
#: Fields that are left out if empty, as releases without them do.
_NEW = ("check", "listens", "image_secret", "image_secret_is_default", "cpu_limit")
_OF_VOLUMES = ("volume_mib", "is_made", "volume")  # fields of mounts that only persistent volumes have


class OtherWire(ValueError):
    """Error of a message in a version that this program does not support."""


def encode(value: Assignment | Outcome) -> bytes:
    """Encode as UTF-8 JSON; an assignment uses the wire version that it names, which version 1 leaves out."""
    fields: dict[str, Any] = {name: getattr(value, name) for name in type(value).__slots__}
    for name in _NEW:
        if not fields.get(name):
            fields.pop(name, None)
    if fields.get("wire") == SILENT:
        del fields["wire"]
    fields = {"version": VERSION, "kind": type(value).__name__, **fields}
    return json.dumps(fields, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return domain types and enums as values for JSON; few tasks have any."""
    if isinstance(value, Enum):
        return value.value
    fields = {name: getattr(value, name) for name in value.__match_args__}
    return {name: item for name, item in fields.items() if item or name not in _OF_VOLUMES}


def _fields(data: bytes, kind: str) -> dict[str, Any]:
    value = parsed(data)
    if not isinstance(value, dict) or (value.pop("version", 0), value.pop("kind", "")) != (VERSION, kind):
        raise ValueError(f"not a version {VERSION} {kind}: {data[:80]!r}")
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment encoded by `encode`.

    Unknown fields are ignored; a field that an executor must not ignore requires a new wire version.

    Raises:
        OtherWire: The assignment has a message version that is not supported.
        ValueError: The data is not an assignment.
    """
    try:
        fields: dict[str, Any] = _fields(data, "Assignment")
        _check_wire(fields.get("wire", SILENT))
        if (ports := fields.get("control_ports")) is not None:
            fields["control_ports"] = tuple(_made(ControlPort, port) for port in ports)
        _decode_rarer(fields)
        if (docker := fields.get("docker")) is not None:
            docker["ulimits"] = tuple(_made(Ulimit, item) for item in docker["ulimits"])
            docker |= {name: tuple(docker.get(name, ())) for name in ("hosts", "dns")}
            fields["docker"] = _made(DockerOptions, docker)
        return _made(Assignment, fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an assignment: {error}") from error


def _made(kind: "type[T]", fields: dict[str, Any]) -> "T":
    """Return an object from its fields, without unknown ones."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return kind(**{name: value for name, value in fields.items() if name in names})


def _check_wire(wire: object) -> None:
    if type(wire) is not int:
        raise TypeError(f"wire must be a whole number, got {wire!r}")
    if not OLDEST <= wire <= WIRE:
        raise OtherWire(
            f"an assignment has wire {wire}, but this executor reads {spoken(WIRE, OLDEST)}: its release and the "
            "scheduler's are too far apart; upgrade the older one"
        )


def _decode_rarer(fields: dict[str, Any]) -> None:
    """Convert in place the fields that few tasks have, as importing their types would slow every executor."""
    if fields.get("mounts"):
        from mesos_gpu.model.jobs.mount import Mount

        fields["mounts"] = tuple(_made(Mount, mount) for mount in fields["mounts"])
    if fields.get("bindings"):
        from mesos_gpu.model.jobs.port import PortBinding

        fields["bindings"] = tuple(_made(PortBinding, binding) for binding in fields["bindings"])
    if (share := fields.get("share")) is not None:
        from mesos_gpu.model.shares.share import Method, Share

        fields["share"] = _made(Share, {**share, "method": Method(share["method"])})


def decode_outcome(data: bytes) -> Outcome:
    """Decode an outcome encoded by `encode`; unknown fields are ignored.

    Raises:
        ValueError: The data is not an outcome.
    """
    try:
        outcome = _made(Outcome, _fields(data, "Outcome"))
        if outcome.min_driver is not None and version_of(outcome.min_driver) is None:
            raise TypeError(f"{outcome.min_driver!r} is not a driver version")
        for name in ("needs", "unhealthy"):
            if not isinstance(getattr(outcome, name), str):
                raise TypeError(f"{name} must be a string, got {getattr(outcome, name)!r}")
    except TypeError as error:
        raise ValueError(f"not an outcome: {error}") from error
    return outcome
