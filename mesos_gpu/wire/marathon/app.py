"""Parsing, updating and output of app definitions as in Marathon 1.11; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.model.apps.app import App
from mesos_gpu.wire.body import MAX_VALUES, decoded
from mesos_gpu.wire.marathon.paths import ROOT, absolute
from mesos_gpu.wire.marathon.problems import INVALID_JSON, Detail, Problems, Report
from mesos_gpu.wire.marathon.rules import Allowed, check
from mesos_gpu.wire.marathon.settle import settled
from mesos_gpu.wire.marathon.shapes import APP, Strategy

_ALLOWED: Final = Allowed()
_GIVE_PORTS: Final = frozenset(("container", "ipAddress", "networks", "portDefinitions", "ports"))
#: By field: other fields whose type errors may cause its problems; "" stands for problems of the whole app.
_FOLLOWS: Final = {
    "": _GIVE_PORTS | {"args", "cmd", "id", "instances", "labels"},
    "cmd": frozenset(("args", "container")),
    "check": _GIVE_PORTS,
    "gpu": frozenset(("gpus",)),
    "healthChecks": _GIVE_PORTS,
    "networks": _GIVE_PORTS,
    "readinessChecks": _GIVE_PORTS,
    "residency": frozenset(("container",)),
    "resourceLimits": frozenset(("cpus", "mem")),
}


@dataclass(frozen=True, slots=True)
class Rollback:
    """An update that requests an earlier version, such as "2015-02-11T09:31:50.021Z", and nothing else."""

    version: str


def json_of(body: bytes, most_values: int = MAX_VALUES) -> Any | Problems:
    """Return the value of a request's JSON body, or `Problems` with status 400 if it is not JSON.

    Args:
        body: JSON in UTF-8.
        most_values: Largest number of values in it, at any depth.
    """
    try:
        return decoded(body, most_values)
    except ValueError as error:
        return Problems(INVALID_JSON, str(error), 400)


def is_pod(value: object) -> bool:
    """Return whether a value is the definition of a pod, not of an app."""
    return isinstance(value, dict) and isinstance(value.get("containers"), list)


def decode_app(
    body: bytes, *, id_from_path: str | None = None, base: str = ROOT, allowed: Allowed = _ALLOWED
) -> App | Problems:
    """Parse the body of POST /v2/apps, or of PUT of an app with partialUpdate=false, as by `app_of`."""
    value = json_of(body)
    if isinstance(value, Problems):
        return value
    return app_of(value, id_from_path=id_from_path, base=base, allowed=allowed)


def app_of(
    value: object, *, id_from_path: str | None = None, base: str = ROOT, allowed: Allowed = _ALLOWED
) -> App | Problems:
    """Parse an app from decoded JSON. An id in the path takes precedence; a relative id is relative to the group
    `base`."""
    report = Report()
    app = read_app(value, report, id_from_path=id_from_path, base=base, allowed=allowed)
    problems = report.problems()
    if problems is None and app is not None:
        return app
    return problems or Problems(INVALID_JSON, (Detail("/", ("error.expected.jsobject",)),))


def read_app(
    value: object,
    report: Report,
    *,
    id_from_path: str | None = None,
    base: str = ROOT,
    allowed: Allowed = _ALLOWED,
) -> App | None:
    """Parse an app and report all problems; None if a value has a wrong type."""
    if isinstance(value, dict) and id_from_path is not None:
        value = {**value, "id": id_from_path}
    sent = APP.read(value, report)
    if sent is None:
        return None
    rest = Report() if report.ill_formed else report
    if "dependencies" in sent:
        needed = (absolute(path, base) for path in sent["dependencies"])
        sent["dependencies"] = tuple(dict.fromkeys(needed))
    app = settled(
        sent,
        absolute(sent.get("id", ""), base),
        rest,
        role=allowed.role,
        default_network=allowed.default_network,
    )
    check(app, allowed, rest)
    if not report.ill_formed:
        return app
    report.adopt_others(rest, _FOLLOWS)
    return None


def app_to_json(app: App) -> dict[str, Any]:
    """Return an app as JSON in current fields, without `version` and `versionInfo`, which the store adds."""
    written = APP.write(app)
    written.setdefault("unreachableStrategy", Strategy.DISABLED.value)
    return written


def update(
    app: App, patch: bytes, *, base: str = ROOT, allowed: Allowed = _ALLOWED
) -> App | Rollback | Problems:
    """Apply the body of PATCH, or of PUT with partialUpdate=true (the default), to an existing app, as by `updated`."""
    value = json_of(patch)
    return value if isinstance(value, Problems) else updated(app, value, base=base, allowed=allowed)


def updated(
    app: App, value: object, *, base: str = ROOT, allowed: Allowed = _ALLOWED
) -> App | Rollback | Problems:
    """Return an app with the sent fields replaced; fields that are absent or null stay unchanged.

    The id also stays, whatever the patch has, as the path of the request selected the app.
    """
    if not isinstance(value, dict):
        return app_of(value)
    patch = {key: item for key, item in value.items() if item is not None and key != "id"}
    if isinstance(patch.get("version"), str):
        return _rollback(patch)
    fields = app_to_json(app)
    for key in _superseded(patch):
        fields.pop(key, None)
    return app_of({**fields, **patch}, id_from_path=app.id, base=base, allowed=allowed)


def _rollback(patch: Mapping[str, Any]) -> Rollback | Problems:
    report = Report()
    APP.read({"id": "a", **patch}, report)
    if any(field.key in patch for field in APP.fields if field.key != "version"):
        report.wrong("The 'version' field may only be combined with the 'id' field.")
    return report.problems() or Rollback(patch["version"])


def _superseded(patch: Mapping[str, Any]) -> list[str]:
    """Return the fields that older forms of them in a patch replace."""
    superseded = []
    container = patch.get("container")
    docker = container.get("docker") if isinstance(container, dict) else None
    if "uris" in patch:
        superseded.append("fetch")
    if "ports" in patch or "ipAddress" in patch:
        superseded.append("portDefinitions")
    if "ipAddress" in patch or (isinstance(docker, dict) and docker.get("network") is not None):
        superseded.append("networks")
    if "ipAddress" in patch:
        superseded.append("container")
    return superseded
