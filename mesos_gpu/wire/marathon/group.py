"""Parsing, updating and output of groups of apps as in Marathon 1.11; pure functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.app import app_to_json, json_of, read_app
from mesos_gpu.wire.marathon.kinds import Field, Flag, ListOf, Number, Record, Refused, Text
from mesos_gpu.wire.marathon.paths import ROOT, absolute, parent_of, problem_of, steps_of
from mesos_gpu.wire.marathon.problems import Detail, Problems, Report
from mesos_gpu.wire.marathon.rules import Allowed
from mesos_gpu.wire.marathon.shapes import APP

_ALLOWED: Final = Allowed()
_DEEPEST: Final = 64  # nesting of groups


@dataclass(frozen=True, slots=True)
class Scale:
    """An update that multiplies the instances of all apps of a group and below."""

    by: float


@dataclass(frozen=True, slots=True)
class GroupRollback:
    """An update that requests an earlier version of a group."""

    version: str


@dataclass(frozen=True, slots=True)
class _Any:
    """Kind of a field that is parsed later, when the id of the group is known."""

    def read(self, value: object, report: Report) -> object:
        return value

    def write(self, value: object) -> object:
        return value


_VERSION: Final = next(field for field in APP.fields if field.key == "version")
_ENFORCED: Final = Field("enforceRole", "enforce_role", Flag())
ENFORCED_ROLE: Final = Record((_ENFORCED,))  # the only field of a PATCH
_GROUP: Final = Record(
    (
        Field("id", "id", Text(least=1)),
        Field("apps", "apps", ListOf(_Any())),
        Field("groups", "groups", ListOf(_Any())),
        Field("pods", "pods", ListOf(Refused("pods are not supported"))),
        Field("dependencies", "dependencies", ListOf(Text(least=1), distinct=True)),
        _ENFORCED,
        Field("scaleBy", "scale_by", Number(least=0)),
        _VERSION,
    )
)


def decode_group(
    body: bytes,
    *,
    id_from_path: str | None = None,
    base: str = ROOT,
    allowed: Allowed = _ALLOWED,
    current: Group | None = None,
) -> Group | Scale | GroupRollback | Problems:
    """Parse the body of POST or PUT /v2/groups, as by `group_of`."""
    value = json_of(body)
    if isinstance(value, Problems):
        return value
    return group_of(value, id_from_path=id_from_path, base=base, allowed=allowed, current=current)


def group_of(
    value: object,
    *,
    id_from_path: str | None = None,
    base: str = ROOT,
    allowed: Allowed = _ALLOWED,
    current: Group | None = None,
) -> Group | Scale | GroupRollback | Problems:
    """Return the whole resulting group; parts that were not sent are taken from `current`, the existing group.

    A list that was sent replaces the existing list: apps and groups that it lacks are ended.
    """
    report = Report()
    sent = _GROUP.read(value, report)
    if sent is not None and ("scale_by" in sent or ("version" in sent and not _describes(sent))):
        return _change(sent, report)
    reader = _Reader(report, allowed)
    if sent is not None and id_from_path is None and "id" not in sent:
        report.mistyped("error.path.missing", "id")
    group = reader.group(sent or {}, absolute(id_from_path or (sent or {}).get("id", ""), base), current)
    problems = report.problems()
    return replace(problems, details=_told_once(problems.details)) if problems else group


def _told_once(details: tuple[Detail, ...] | str) -> tuple[Detail, ...] | str:
    """Return problems without those that repeat, below a group, a problem of the group's id, which is part of all
    ids."""
    if isinstance(details, str):
        return details
    own = {detail.path.removesuffix("id"): detail.errors for detail in details if detail.path.endswith("/id")}
    left = []
    for detail in details:
        ends = [i + 1 for i, letter in enumerate(detail.path) if letter == "/"]
        above = {
            error for end in ends for error in own.get(detail.path[:end], ()) if detail.path[end:] != "id"
        }
        if errors := tuple(error for error in detail.errors if error not in above):
            left.append(replace(detail, errors=errors))
    return tuple(left)


def _describes(sent: dict[str, Any]) -> bool:
    return any(name in sent for name in ("apps", "groups", "dependencies", "enforce_role"))


def _change(sent: dict[str, Any], report: Report) -> Scale | GroupRollback | Problems:
    if _describes(sent) or ("scale_by" in sent and "version" in sent):
        report.wrong("not allowed in conjunction with other properties.", "scaleBy")
    problems = report.problems()
    if problems is not None:
        return problems
    return Scale(sent["scale_by"]) if "scale_by" in sent else GroupRollback(sent["version"])


@dataclass(frozen=True, slots=True)
class _Reader:
    """Parser of a tree of groups; paths of problems are from the root, as in "/groups(0)/apps(1)/cpus"."""

    report: Report
    allowed: Allowed

    def group(self, sent: dict[str, Any], id: str, current: Group | None) -> Group:
        """Return the group `id` with sent parts, and other parts from `current`."""
        if why := problem_of(id):
            self.report.wrong(why, "id")
        if sent.get("enforce_role") and len(steps_of(id)) != 1:
            self.report.wrong("enforceRole can only be set for top-level groups", "enforceRole")
        current = current or Group(id)
        apps = self.apps(sent["apps"], id) if "apps" in sent else current.apps
        groups = self.groups(sent["groups"], id, current) if "groups" in sent else current.groups
        if {app.id for app in apps} & {group.id for group in groups}:
            self.report.wrong("Groups and Applications may not have the same identifier.")
        needed = current.dependencies
        if "dependencies" in sent:
            needed = tuple(dict.fromkeys(absolute(path, id) for path in sent["dependencies"]))
        for i, path in enumerate(needed):
            if why := problem_of(path):
                self.report.wrong(why, "dependencies", i)
        return Group(id, apps, groups, needed, sent.get("enforce_role", current.enforce_role))

    def apps(self, values: tuple[object, ...], id: str) -> tuple[App, ...]:
        """Parse the apps of the group `id`; an app that was sent twice is a problem."""
        apps: dict[str, App] = {}
        for i, value in enumerate(values):
            with self.report.at("apps", i):
                own = Report()
                app = read_app(value, own, base=id, allowed=self.allowed)
                self.report.adopt(own)
                if app is not None and self.is_child(app.id, id, apps):
                    apps[app.id] = app
        return tuple(apps.values())

    def groups(self, values: tuple[object, ...], id: str, current: Group) -> tuple[Group, ...]:
        """Parse the child groups of the group `id`; `current` is the existing group."""
        groups: dict[str, Group] = {}
        before = {group.id: group for group in current.groups}
        for i, value in enumerate(values):
            with self.report.at("groups", i):
                sent = _GROUP.read(value, self.report)
                if sent is not None and "id" not in sent:
                    self.report.mistyped("error.path.missing", "id")
                path = absolute((sent or {}).get("id", ""), id)
                # Only children are parsed, so that the recursion is bounded by the length of ids.
                if sent and "id" in sent and self.is_child(path, id, groups):
                    groups[path] = self.group(sent, path, before.get(path))
        return tuple(groups.values())

    def is_child(self, path: str, id: str, known: Mapping[str, object]) -> bool:
        """Return whether an id is directly below the group `id` and not among those known; report it if not."""
        why = ""
        if path == ROOT or parent_of(path) != id:
            why = f"Identifier is not child of '{id}'"
        elif path in known:
            why = f"{path} appears twice"
        elif len(steps_of(path)) > _DEEPEST:
            why = f"groups may be nested at most {_DEEPEST} deep"
        if why:
            self.report.wrong(why, "id")
        return not why


def group_to_json(group: Group, app: Callable[[App], dict[str, Any]] = app_to_json) -> dict[str, Any]:
    """Return a group as JSON with everything below it, without `version`; `app` converts an app."""
    written: dict[str, Any] = {
        "id": group.id,
        "apps": [app(each) for each in group.apps],
        "pods": [],
        "groups": [group_to_json(each, app) for each in group.groups],
        "dependencies": list(group.dependencies),
    }
    return written | enforced_to_json(group)


def enforced_to_json(group: Group) -> dict[str, bool]:
    """Return `enforceRole` if it was set for a group; else nothing, as strict clients (marathon-python) lack the
    field."""
    return {} if group.enforce_role is None else {"enforceRole": group.enforce_role}
