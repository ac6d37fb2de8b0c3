"""What goes to an executor in TaskInfo.data, and what its last status brings back.

Only the standard library's json: the executor imports it.
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
#: Fields that are left out where they are empty, as by a release without them.
_NEW = ("check", "listens", "image_secret", "image_secret_is_default", "cpu_limit")
_OF_VOLUMES = ("volume_mib", "is_made", "volume")  # fields of mounts that only persistent volumes have


class OtherWire(ValueError):
    """A message in a version that this program does not read."""


def encode(value: Assignment | Outcome) -> bytes:
    """Encode as UTF-8 JSON; an assignment in the wire that it names, which the first does not say."""
    said: dict[str, Any] = {name: getattr(value, name) for name in type(value).__slots__}
    for name in _NEW:
        if not said.get(name):
            said.pop(name, None)
    if said.get("wire") == SILENT:
        del said["wire"]
    said = {"version": VERSION, "kind": type(value).__name__, **said}
    return json.dumps(said, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """What JSON has no word for: nouns and their kinds, of which few tasks have any."""
    if isinstance(value, Enum):
        return value.value
    said = {name: getattr(value, name) for name in value.__match_args__}
    return {name: item for name, item in said.items() if item or name not in _OF_VOLUMES}


def _fields(data: bytes, kind: str) -> dict[str, Any]:
    value = parsed(data)
    if not isinstance(value, dict) or (value.pop("version", 0), value.pop("kind", "")) != (VERSION, kind):
        raise ValueError(f"not a version {VERSION} {kind}: {data[:80]!r}")
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}


def decode_assignment(data: bytes) -> Assignment:
    """The inverse of `encode`.

    Fields that are not known here are left out: whoever must not do without one gives the assignment a new wire.

    Raises:
        OtherWire: An assignment in a version of messages that is not read here.
        ValueError: Not an assignment.
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
    """A noun of its fields, without those that are not known here."""
    known: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return kind(**{name: value for name, value in fields.items() if name in known})


def _check_wire(wire: object) -> None:
    if type(wire) is not int:
        raise TypeError(f"wire must be a whole number, got {wire!r}")
    if not OLDEST <= wire <= WIRE:
        raise OtherWire(
            f"an assignment of wire {wire}, and this executor reads {spoken(WIRE, OLDEST)}: its release and the "
            "scheduler's are too far apart"
        )


def _decode_rarer(fields: dict[str, Any]) -> None:
    """What few tasks have, in place: its nouns cost an executor time."""
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
    """The inverse of `encode`; fields that are not known here are left out.

    Raises:
        ValueError: Not an outcome.
    """
    try:
        outcome = _made(Outcome, _fields(data, "Outcome"))
        if outcome.min_driver is not None and version_of(outcome.min_driver) is None:
            raise TypeError(f"{outcome.min_driver!r} is no driver's version")
        for name in ("needs", "unhealthy"):
            if not isinstance(getattr(outcome, name), str):
                raise TypeError(f"{name} must be a string, got {getattr(outcome, name)!r}")
    except TypeError as error:
        raise ValueError(f"not an outcome: {error}") from error
    return outcome
