"""Groups of apps as Marathon 1.11 reads, updates and prints them. Pure."""

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
_DEEPEST: Final = 64  # groups within groups


@dataclass(frozen=True, slots=True)
class Scale:
    """An update that multiplies the instances of all apps below."""

    by: float


@dataclass(frozen=True, slots=True)
class GroupRollback:
    """An update that asks for an earlier version."""

    version: str


@dataclass(frozen=True, slots=True)
class _Any:
    """Read later, with the group's id."""

    def read(self, value: object, report: Report) -> object:
        return value

    def write(self, value: object) -> object:
        return value


_VERSION: Final = next(field for field in APP.fields if field.key == "version")
_ENFORCED: Final = Field("enforceRole", "enforce_role", Flag())
ENFORCED_ROLE: Final = Record((_ENFORCED,))  # all that a PATCH says
_GROUP: Final = Record(
    (
        Field("id", "id", Text(least=1)),
        Field("apps", "apps", ListOf(_Any())),
        Field("groups", "groups", ListOf(_Any())),
        Field("pods", "pods", ListOf(Refused("pods are not offered here"))),
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
    """A body of POST or PUT /v2/groups. See `group_of`."""
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
    """The group that is meant, whole: of `current`, what is now at its id, it has what was not sent.

    A list that was sent takes the place of all that was there: apps and groups missing from it end.
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
    """Without what is wrong with a group's id at each place below it, as it is a part of all ids there."""
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
    """Goes down the tree; paths of problems are from its root, as "/groups(0)/apps(1)/cpus"."""

    report: Report
    allowed: Allowed

    def group(self, sent: dict[str, Any], id: str, current: Group | None) -> Group:
        """The group `id` with what was sent, else what `current` has."""
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
        """Read the apps of the group `id`; an app that was sent twice is a problem."""
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
        """Read the groups of the group `id`."""
        groups: dict[str, Group] = {}
        before = {group.id: group for group in current.groups}
        for i, value in enumerate(values):
            with self.report.at("groups", i):
                sent = _GROUP.read(value, self.report)
                if sent is not None and "id" not in sent:
                    self.report.mistyped("error.path.missing", "id")
                path = absolute((sent or {}).get("id", ""), id)
                # Only a child is gone into: so no more deeply than an id may be long.
                if sent and "id" in sent and self.is_child(path, id, groups):
                    groups[path] = self.group(sent, path, before.get(path))
        return tuple(groups.values())

    def is_child(self, path: str, id: str, known: Mapping[str, object]) -> bool:
        """Whether it is right below the group `id` and none of those known; else that is reported."""
        why = ""
        if path == ROOT or parent_of(path) != id:
            why = f"Identifier is not child of '{id}'"
        elif path in known:
            why = f"{path} is there twice"
        elif len(steps_of(path)) > _DEEPEST:
            why = f"groups may be {_DEEPEST} deep at most"
        if why:
            self.report.wrong(why, "id")
        return not why


def group_to_json(group: Group, app: Callable[[App], dict[str, Any]] = app_to_json) -> dict[str, Any]:
    """A group with all below it, without `version`; `app` prints an app, with the counts of its tasks perhaps."""
    written: dict[str, Any] = {
        "id": group.id,
        "apps": [app(each) for each in group.apps],
        "pods": [],
        "groups": [group_to_json(each, app) for each in group.groups],
        "dependencies": list(group.dependencies),
    }
    return written | enforced_to_json(group)


def enforced_to_json(group: Group) -> dict[str, bool]:
    """A group says it once it was told it: a client that knows every key, marathon-python, does not know this one."""
    return {} if group.enforce_role is None else {"enforceRole": group.enforce_role}
