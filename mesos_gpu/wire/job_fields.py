"""Conversion of job fields from and to JSON, by the kinds with which `JobSpec` declares them; pure functions."""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint, Topology
from mesos_gpu.model.jobs.fields import Field, Kind, entry
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.job import FIELDS, JobSpec
from mesos_gpu.model.jobs.mount import Mount, unfit
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.secret import Secret
from mesos_gpu.model.shares.units import cards_of, number_of
from mesos_gpu.wire import image as images
from mesos_gpu.wire.checking import Check, escaped, is_command, is_text, show
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS, constraint_of, topology_of, topology_to_json
from mesos_gpu.wire.kinds import PLAIN_READERS, PLAIN_WRITERS, Reader, Writer, read_fields
from mesos_gpu.wire.mounts import MAX as MAX_MOUNTS
from mesos_gpu.wire.mounts import NAMED_KNOWN, mount_of, mount_to_json, named_mount
from mesos_gpu.wire.secrets import secrets_from_json, secrets_to_json
from mesos_gpu.wire.shares import gpu_milli

KNOWN: Final = tuple(field.key for field in FIELDS)
CHECK_KNOWN: Final = (
    "protocol", "command", "path", "port", "grace_period_s", "interval_s", "timeout_s", "max_consecutive_failures",
    "delay_s",
)  # fmt: skip
CHECK_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "port": (1, 65535),
    "timeout_s": (1, 10**9),
    **dict.fromkeys(("grace_period_s", "interval_s", "max_consecutive_failures", "delay_s"), (0, 10**9)),
}
CHECK_PATH: Final = re.compile(r"/[^\x00\ud800-\udfff]*")
MAX_CHECKS: Final = 16
PROTOCOLS: Final = tuple(protocol for protocol in Protocol if protocol.by_executor)
ARTIFACT_KNOWN: Final = ("uri", "extract", "executable", "cache", "dest_path")
MAX_ARTIFACTS: Final = 100
MAX_PORTS: Final = 100
HIDDEN: Final = "***"
_TEXT: Final = re.compile(r"[^\0\ud800-\udfff]+")


def read(check: Check) -> dict[str, Any]:
    """Return the values of all fields by their names in `JobSpec`, with defaults for absent ones."""
    values = read_fields(check, FIELDS, _READERS)
    values["gpus"], values["gpu_milli"] = cards_of(values["gpus"])
    return values


def write(spec: JobSpec, *, show_env: bool = True) -> dict[str, Any]:
    """Return the fields of a job as JSON of a request, with null for fields that do not apply.

    Without `show_env` the values of its environment are hidden, as they may be secrets.
    """
    written = dict(zip(KNOWN, _VALUES(spec), strict=True))
    for key, as_json in _WRITTEN:
        if written[key] is not None:
            written[key] = as_json(written[key])
    written["gpus"] = number_of(spec.gpus * spec.gpu_milli)
    for key, needed in _OF_NEEDED:
        if not getattr(spec, needed):
            written[key] = None
    if not show_env:
        for key in _SECRET:
            written[key] = dict.fromkeys(written[key], HIDDEN)
    return written


# --- reading


def _gpus(check: Check, field: Field) -> int:
    """Return the requested thousandths of GPUs."""
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, of.Gpus)
    asked = gpu_milli(got, kind)
    if isinstance(asked, str):
        check.problem(field.key, asked)
        return 0
    return asked


def _image(check: Check, field: Field) -> str | None:
    got = check.given[field.key]
    form = "an image, as [registry[:port]/]path[:tag][@digest]"
    why = images.problem(got) if isinstance(got, str) else f"got {show(got)}"
    if why:
        check.problem(field.key, f"must be {form}: {why}")
    return got if isinstance(got, str) else None


def _command(check: Check, field: Field) -> str | None:
    got = check.given[field.key]
    if "argv" in check.given:
        return None  # command and argv exclude each other, which `wire.jobs` reports
    if not is_command(got):
        check.problem(field.key, f"must be a non-empty string without NUL, got {show(got)}")
        return None
    return str(got)


def _argv(check: Check, field: Field) -> tuple[str, ...]:
    got = check.given[field.key]
    if "command" in check.given:
        return ()  # command and argv exclude each other, which `wire.jobs` reports
    words = got if isinstance(got, list) else []
    if not words or not all(is_text(word) for word in words) or not words[0]:
        reason = "must be a list of strings without NUL, the first not empty"
        check.problem(field.key, f"{reason}, got {show(got)}")
        return ()
    return tuple(words)


def _args(check: Check, field: Field) -> tuple[str, ...]:
    got = check.given[field.key]
    if not isinstance(got, list) or not all(map(is_text, got)):
        check.problem(field.key, f"must be a list of strings without NUL, got {show(got)}")
        return ()
    if got and ("image" not in check.given or {"command", "argv"} & check.given.keys()):
        why = "are arguments for the entrypoint of an image; set image, and neither command nor argv"
        check.problem(field.key, why)
    return tuple(got)


def _constraints(check: Check, field: Field) -> tuple[Constraint, ...]:
    """Parse the constraints of a job."""
    key, got = field.key, check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_CONSTRAINTS:
        form = f"a list of at most {MAX_CONSTRAINTS} constraints"
        check.problem(key, f'must be {form}, as [["hostname", "UNIQUE"]], got {show(got)}')
        return ()
    constraints = []
    for i, item in enumerate(got):
        constraint = constraint_of(item)
        if isinstance(constraint, str):
            check.problem(f"{key}/{i}", f"{constraint}; got {show(item)}")
        elif constraint.compares and "app" not in check.given and _has_one_task(check):
            why = f"{show(item)} compares the jobs of an app, but this job has no app; set app, or tasks"
            check.problem(f"{key}/{i}", why)
        else:
            constraints.append(constraint)
    return tuple(constraints)


def _has_one_task(check: Check) -> bool:
    """Return whether the request is for a single task; tasks of a gang get one port each."""
    return bool(check.given.get("tasks", 1) == 1)


def _ports(check: Check, field: Field) -> tuple[PortWish, ...]:
    key, got = field.key, check.given[field.key]
    form = f"a list of at most {MAX_PORTS} ports of the host, each from 0 (any) to 65535"
    if not isinstance(got, list) or len(got) > MAX_PORTS or not all(map(_is_port, got)):
        check.problem(key, f"must be {form}, got {show(got)}")
        return ()
    fixed = [port for port in got if port]
    if len(set(fixed)) < len(fixed):
        check.problem(key, f"must not have a port twice, got {show(got)}; remove one")
    if got and not _has_one_task(check):
        check.problem(
            key, "is only for jobs of one task; leave it out, as each task of a gang gets a port in PORT"
        )
    return tuple(PortWish(None, port, port) for port in got)


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def _artifacts(check: Check, field: Field) -> tuple[Artifact, ...]:
    key, got = field.key, check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_ARTIFACTS:
        check.problem(key, f"must be a list of at most {MAX_ARTIFACTS} URIs, got {show(got)}")
        return ()
    return tuple(_artifact(check, f"{key}/{i}", item) for i, item in enumerate(got))


def _artifact(outer: Check, path: str, value: object) -> Artifact:
    """Parse a file to fetch, given as a URI or an object."""
    given = {"uri": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        outer.problem(path, f"must be a URI, or an object with uri, got {show(value)}")
        return Artifact("")
    check = Check(given, ARTIFACT_KNOWN)
    made = Artifact(
        check.text("uri", "", _TEXT, "a URI") or "",
        check.flag("extract", True),
        check.flag("executable"),
        check.flag("cache"),
        check.text("dest_path", None, _TEXT, "a path below the sandbox"),
    )
    if not check.problems and made.problem:
        check.problem("", made.problem)
    outer.take(path, check)
    return made


def _mounts(check: Check, field: Field) -> tuple[Mount, ...]:
    """Parse the volumes of a job."""
    key, got = field.key, check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_MOUNTS:
        check.problem(key, f"must be a list of at most {MAX_MOUNTS} volumes, got {show(got)}")
        return ()
    mounts = {
        i: mount for i, item in enumerate(got) if (mount := _mount(check, f"{key}/{i}", item)) is not None
    }
    places = [*mounts]
    for i, why in unfit([*mounts.values()]):
        check.problem(f"{key}/{places[i]}", why)
    names = set[str]()
    for i, mount in mounts.items():
        if mount.volume and mount.volume in names:
            check.problem(f"{key}/{i}/name", f"{show(mount.volume)} appears twice; leave one of them out")
        if mount.volume and not _has_one_task(check):
            why = (
                f"the volume {mount.volume} is on one node, but a job of several tasks may use several nodes; set "
                "tasks to 1, or name a path of the hosts as HOST:PATH"
            )
            check.problem(f"{key}/{i}", why)
        names.add(mount.volume)
    return tuple(mounts.values())


def _mount(outer: Check, path: str, value: object) -> Mount | None:
    """Parse a path of a host or a named volume; None if it has problems, which are reported to `outer`."""
    if isinstance(value, dict):
        check = Check(value, NAMED_KNOWN)
        named = named_mount(check)
        outer.take(path, check)
        return None if check.problems else named
    mount = mount_of(value if is_text(value) else None)
    if isinstance(mount, str):
        outer.problem(path, f"{mount}; got {show(value)}")
        return None
    return mount


def _level(check: Check, field: Field) -> Topology | None:
    got = check.given[field.key]
    topology = topology_of(got)
    if isinstance(topology, str):
        check.problem(field.key, f"{topology}, got {show(got)}")
        return None
    return topology


def _secrets(check: Check, field: Field) -> tuple[Secret, ...]:
    key, env = field.key, check.given.get("env")
    secrets, problems = secrets_from_json(check.given[key], env if isinstance(env, dict) else {})
    for name, why in problems:
        check.problem(f"{key}/{escaped(name)}" if name else key, why)
    return secrets


def _health_checks(check: Check, field: Field) -> tuple[HealthCheck, ...]:
    key, got = field.key, check.given[field.key]
    if not isinstance(got, list) or len(got) > MAX_CHECKS:
        check.problem(key, f"must be a list of at most {MAX_CHECKS} health checks, got {show(got)}")
        return ()
    own_port = bool(check.given.get("ports")) or not _has_one_task(check)
    return tuple(_health_check(check, f"{key}/{i}", item, own_port) for i, item in enumerate(got))


def _health_check(outer: Check, path: str, value: object, own_port: bool) -> HealthCheck:
    """Parse a health check; `own_port`: whether the task gets ports of which the first can be checked."""
    if not isinstance(value, dict):
        outer.problem(path, f"must be an object, got {show(value)}")
        return HealthCheck()
    check = Check(value, CHECK_KNOWN)
    protocol = check.one_of("protocol", Protocol.COMMAND, PROTOCOLS)
    if "protocol" not in check.given:
        check.problem("protocol", f"must be one of {', '.join(one.value for one in PROTOCOLS)}")
    fits = {"command": protocol is Protocol.COMMAND, "path": protocol.is_http}
    fits["port"] = not fits["command"]
    for key in fits:
        if key in check.given and not fits[key] and "protocol" not in check.failed:
            check.problem(key, f"is not used with protocol {protocol.value}; leave it out")
    if fits["command"] and "protocol" not in check.failed and not is_command(check.given.get("command")):
        check.problem("command", "must be a non-empty string without NUL, for /bin/sh -c")
    if fits["port"] and "port" not in check.given and not own_port:
        why = f"is needed for {protocol.value}: set the port of the host on which the task listens"
        check.problem("port", why)
    made = _timed(check, protocol, fits)
    outer.take(path, check)
    return made


def _timed(check: Check, protocol: Protocol, fits: Mapping[str, bool]) -> HealthCheck:
    """Return the health check with its times and with those fields that fit its protocol."""
    standard = HealthCheck()

    def whole(key: str) -> int:
        return check.integer(key, getattr(standard, key), CHECK_BOUNDS[key])

    return HealthCheck(
        protocol=protocol,
        command=check.given.get("command") if fits["command"] else None,
        path=check.text("path", None, CHECK_PATH, "a path, as /health") if fits["path"] else None,
        port=check.integer("port", 1, CHECK_BOUNDS["port"]) if "port" in check.given else None,
        port_index=0 if fits["port"] and "port" not in check.given else None,
        grace_period_s=whole("grace_period_s"),
        interval_s=whole("interval_s"),
        timeout_s=whole("timeout_s"),
        max_consecutive_failures=whole("max_consecutive_failures"),
        delay_s=whole("delay_s"),
    )


_READERS: Final[Mapping[type[Kind], Reader]] = {
    **PLAIN_READERS,
    of.Gpus: _gpus,
    of.Image: _image,
    of.Command: _command,
    of.Argv: _argv,
    of.Args: _args,
    of.Constraints: _constraints,
    of.Level: _level,
    of.Ports: _ports,
    of.Artifacts: _artifacts,
    of.Mounts: _mounts,
    of.Secrets: _secrets,
    of.HealthChecks: _health_checks,
}


# --- writing


def _list_or_none(value: tuple[str, ...]) -> list[str] | None:
    return list(value) or None


_WRITERS: Final[Mapping[type[Kind], Writer | None]] = {
    **PLAIN_WRITERS,
    of.Image: None,
    of.Command: None,
    of.Argv: _list_or_none,
    of.Args: _list_or_none,
    of.Constraints: lambda constraints: [constraint.as_list() for constraint in constraints],
    of.Level: topology_to_json,
    of.Ports: lambda wishes: [wish.host_port for wish in wishes if wish.host_port is not None],
    of.Artifacts: lambda artifacts: [_written_artifact(artifact) for artifact in artifacts],
    of.Mounts: lambda mounts: [mount_to_json(mount) for mount in mounts],
    of.Secrets: secrets_to_json,
    of.HealthChecks: lambda checks: [_written_check(check) for check in checks],
}


def _written_artifact(artifact: Artifact) -> dict[str, Any]:
    return {key: getattr(artifact, key) for key in ARTIFACT_KNOWN}


def _written_check(check: HealthCheck) -> dict[str, Any]:
    return {**{key: getattr(check, key) for key in CHECK_KNOWN}, "protocol": check.protocol.value}


_VALUES: Final = attrgetter(*(field.name for field in FIELDS))
#: Fields whose values need conversion to JSON.
_WRITTEN: Final = [
    (field.key, as_json) for field in FIELDS if (as_json := entry(_WRITERS, field.kind)) is not None
]
#: Fields that the scheduler decides if they are absent, but that do not apply without the field that they need.
_OF_NEEDED: Final = [(field.key, field.needs) for field in FIELDS if field.decided_later and field.needs]
_SECRET: Final = [field.key for field in FIELDS if isinstance(field.kind, of.Variables)]
