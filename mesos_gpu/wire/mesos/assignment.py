"""What goes to an executor in TaskInfo.data, and what its last status brings back.

Only the standard library's json: the executor imports it.
"""

import json
from dataclasses import asdict
from typing import Any

from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.driver import version_of
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.body import parsed

__all__ = ["Assignment", "Outcome", "decode_assignment", "decode_outcome", "encode"]

VERSION = 1


def encode(value: Assignment | Outcome) -> bytes:
    """Encode as UTF-8 JSON."""
    fields = asdict(value)
    if fields.get("share") is not None:
        fields["share"]["method"] = fields["share"]["method"].value
    return json.dumps(
        {"version": VERSION, "kind": type(value).__name__, **fields}, separators=(",", ":")
    ).encode()


def _fields(data: bytes, kind: str) -> dict[str, Any]:
    value = parsed(data)
    if not isinstance(value, dict) or (value.pop("version", 0), value.pop("kind", "")) != (VERSION, kind):
        raise ValueError(f"not a version {VERSION} {kind}: {data[:80]!r}")
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}


def decode_assignment(data: bytes) -> Assignment:
    """The inverse of `encode`.

    Raises:
        ValueError: Not an assignment of this version.
    """
    try:
        fields: dict[str, Any] = _fields(data, "Assignment")
        if (ports := fields.get("control_ports")) is not None:
            fields["control_ports"] = tuple(ControlPort(**port) for port in ports)
        _decode_rarer(fields)
        if (docker := fields.get("docker")) is not None:
            docker["ulimits"] = tuple(Ulimit(**item) for item in docker["ulimits"])
            docker |= {name: tuple(docker.get(name, ())) for name in ("hosts", "dns")}
            fields["docker"] = DockerOptions(**docker)
        return Assignment(**fields)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not an assignment: {error}") from error


def _decode_rarer(fields: dict[str, Any]) -> None:
    """What few tasks have, in place: its nouns cost an executor time."""
    if fields.get("mounts"):
        from mesos_gpu.model.jobs.mount import Mount

        fields["mounts"] = tuple(Mount(**mount) for mount in fields["mounts"])
    if fields.get("bindings"):
        from mesos_gpu.model.jobs.port import PortBinding

        fields["bindings"] = tuple(PortBinding(**binding) for binding in fields["bindings"])
    if (share := fields.get("share")) is not None:
        from mesos_gpu.model.shares.share import Method, Share

        fields["share"] = Share(**{**share, "method": Method(share["method"])})


def decode_outcome(data: bytes) -> Outcome:
    """The inverse of `encode`.

    Raises:
        ValueError: Not an outcome of this version.
    """
    try:
        outcome = Outcome(**_fields(data, "Outcome"))
        if outcome.min_driver is not None and version_of(outcome.min_driver) is None:
            raise TypeError(f"{outcome.min_driver!r} is no driver's version")
        for name in ("needs", "unhealthy"):
            if not isinstance(getattr(outcome, name), str):
                raise TypeError(f"{name} must be a string, got {getattr(outcome, name)!r}")
    except TypeError as error:
        raise ValueError(f"not an outcome: {error}") from error
    return outcome
