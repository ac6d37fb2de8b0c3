"""App files: their contents, and the requests that apply them."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from mesos_gpu.adapters.files.places import Lines, lines_of
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Refused
from mesos_gpu.wire.marathon.assign import unknown_fields
from mesos_gpu.wire.marathon.paths import ROOT, absolute, problem_of, steps_of

Json = dict[str, Any]
#: Field of an app in a file: a directory to upload. The REST interface has `gpu.upload` instead.
WORKDIR: Final = "workdir"
#: Fields that Marathon's interface adds when it prints a definition; they are dropped so that it can be sent back.
PRINTED: Final = frozenset(
    ("version", "versionInfo", "tasks", "tasksStaged", "tasksRunning", "tasksHealthy", "tasksUnhealthy",
     "deployments", "lastTaskFailure", "readinessCheckResults", "taskStats", "ends", "warnings")
)  # fmt: skip


_INDEX: Final = re.compile(r"\((\d+)\)")  # list index in paths of Marathon's interface
_NO_PODS: Final = "pods are not supported: use an app for each container, or a job of several tasks"


class BadAppFile(BadFile):
    """Error for a file that does not contain apps; nothing was sent."""


def _no_line(_pointer: str) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Contents of an app file: an app, a list of apps, or a group, whose lists are complete.

    The root group, as `GET /v2/groups` of Marathon prints it, is read as the list of its apps: other apps of the
    cluster stay.

    Attributes:
        single: Whether the file contains one app that is not in a list.
        line_of: Function from JSON pointers to line numbers of the file.
        places: JSON pointer of each app in the root group of the file; empty for other files.
        pods: Ids of pods, which are left out.
    """

    apps: Sequence[Json] = ()
    group: Json | None = None
    single: bool = False
    line_of: Lines = _no_line
    places: Sequence[str] = ()
    pods: Sequence[str] = ()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Add the file's lines to the problems of a refusal that is raised in the body."""
        try:
            yield
        except Refused as error:
            error.problems = tuple(
                {"path": self._named(problem["path"]), "reason": problem["reason"]}
                for problem in error.problems
            )
            error.line_of = lambda path: self.line_of(self._pointer(path))
            raise

    def _named(self, path: str) -> str:
        """Return the path of a problem with the app's id in place of its index, for an app of the root group."""
        if self.places and (match := _INDEX.match(path)):
            return f"{self.ids[int(match[1])]}: {path[match.end() :] or '/'}"
        return path

    def _pointer(self, path: str) -> str:
        """Return the JSON pointer of a path that `_named` returned."""
        id, colon, inner = path.partition(": ")
        if self.places and colon and id in self.ids:
            path = self.places[self.ids.index(id)] + inner
        return _INDEX.sub(r"/\1", path)

    def with_code(self, sent: Callable[[Path], str], file: str) -> None:
        """Upload the directory of each app, and replace its path by the uploaded archive's reference.

        Args:
            sent: Function that uploads a directory and returns the reference of its archive.
            file: Path of the app file, to which directories are relative; "-" for the current directory.

        Raises:
            BadAppFile: A directory is not a path, or is given together with an archive.
        """
        base = Path() if file == "-" else Path(file).parent
        for app in (*self.apps, *_apps_of(self.group)):
            if WORKDIR not in app:
                continue
            directory, options = app.pop(WORKDIR), app.get("gpu") or {}
            if not isinstance(directory, str) or not directory or not isinstance(options, dict):
                raise BadAppFile(
                    f"{app['id']}: {WORKDIR} must be the path of a directory", remedy="correct the field"
                )
            app["gpu"] = {**options, "upload": sent(base / directory)}

    @property
    def put(self) -> tuple[str, object]:
        """Path and body of the PUT request that applies the file."""
        if self.group is not None:
            return f"/v2/groups{self.group_id}", self.group
        if self.single:
            return f"/v2/apps{absolute(self.apps[0]['id'])}", self.apps[0]
        return "/v2/apps", self.apps

    @property
    def ids(self) -> list[str]:
        """Absolute ids of the apps; empty for a group."""
        return [absolute(app["id"]) for app in self.apps]

    @property
    def names(self) -> str:
        """Ids as text for messages."""
        return self.group_id if self.group or self.places else " ".join(self.ids)

    @property
    def group_id(self) -> str:
        """Absolute id of the group; that of the root for apps."""
        return absolute(self.group["id"]) if self.group else ROOT


def read_file(file: str) -> Wanted:
    """Read a file of apps in JSON or YAML, `-` for stdin; note ignored pods and unknown fields on stderr.

    Raises:
        BadAppFile: The file contains no apps.
    """
    name = "stdin" if file == "-" else file
    with click.open_file(file, "rb") as stream:
        text = stream.read().decode("utf-8", "replace")
    value, line_of = parse(text, name), lines_of(text)
    before = _before(value)
    apps = replace(wanted(value, name), line_of=lambda pointer: line_of(before + pointer))
    for pod in apps.pods:
        output.note(f"{name}: pod {pod} is ignored: {_NO_PODS}")
    for app in (*apps.apps, *_apps_of(apps.group)):
        if unknown := unknown_fields({key: value for key, value in app.items() if key != WORKDIR}):
            output.note(f"{name}: {app.get('id', '?')}: unknown fields are ignored: {', '.join(unknown)}")
    return apps


def _before(value: Any) -> str:
    """Return the pointer to the apps in a scheduler's answer, which can be sent back; "" for other documents."""
    if not isinstance(value, dict):
        return ""
    if set(value) == {"app"}:
        return "/app"
    return "/apps" if "id" not in value and isinstance(value.get("apps"), list) else ""


def wanted(value: Any, name: str) -> Wanted:
    """Read apps or a group from a parsed value.

    Raises:
        BadAppFile: The value contains no apps.
    """
    if before := _before(value):  # an answer of GET /v2/apps/{id}, or of GET /v2/apps
        value = value[before[1:]]
    if isinstance(value, dict) and ("apps" in value or "groups" in value):
        if isinstance(value.get("id"), str) and absolute(value["id"]) == ROOT:
            return _of_root(value, name)
        pods = [absolute(pod, base) for base, pod in _pods_of(_with_id(value, "", name))]
        return Wanted(group=_group(value), pods=pods)
    apps_in = value if isinstance(value, list) else [value]
    if not apps_in:
        raise BadAppFile(f"{name} holds no app", remedy="write an app, a list of apps, or a group")
    places = [f"({i})" if isinstance(value, list) else "" for i in range(len(apps_in))]
    apps = [definition(_with_id(app, place, name)) for app, place in zip(apps_in, places, strict=True)]
    return Wanted(apps, single=not isinstance(value, list))


def _with_id(value: Any, place: str, name: str) -> Json:
    if not isinstance(value, dict):
        content = "nothing" if value is None else json.dumps(value, default=str)[:60]
        what = f"{name}: expected an app{' at ' + place if place else ''}, got {content}"
        raise BadAppFile(what, remedy="write an app, a list of apps, or a group, each an object")
    if isinstance(value.get("containers"), list):
        raise BadAppFile(f"{name}: {place}/ is a pod, and {_NO_PODS}", remedy="replace it by an app")
    if not isinstance(value.get("id"), str) or not value["id"].strip("/ "):
        raise BadAppFile(f"{name}: {place}/id: is missing", remedy='add an id, for example "id": "/shop/db"')
    if ".." in steps_of(id := absolute(value["id"])):
        raise BadAppFile(
            f"{name}: {place}/id: {problem_of(id)}", remedy='correct the id, for example "id": "/shop/db"'
        )
    return value


def _of_root(group: Json, name: str) -> Wanted:
    """Read the apps of a root group.

    Raises:
        BadAppFile: There is no app, or a group or an app lacks its id.
    """
    placed = list(_below(group, ROOT, "", (), name))
    pods = [absolute(pod, base) for base, pod in _pods_of(group)]
    if not placed:
        raise BadAppFile(f"{name} holds no app", remedy="write an app, a list of apps, or a group")
    return Wanted([app for _, app in placed], places=[place for place, _ in placed], pods=pods)


def _below(group: Json, id: str, place: str, needed: Sequence[str], name: str) -> Iterator[tuple[str, Json]]:
    """Yield each app of a group with its JSON pointer, with absolute ids and the dependencies of its groups added."""
    needed = [*needed, *_absolute_all(group.get("dependencies"), id)]
    for i, app in enumerate(_list_of(group, "apps", place, name)):
        at = f"{place}/apps/{i}"
        own = definition(_with_id(app, at, name))
        if depends := [*_absolute_all(own.get("dependencies"), id), *needed]:
            own["dependencies"] = list(dict.fromkeys(depends))
        yield at, {**own, "id": absolute(own["id"], id)}
    for i, inner in enumerate(_list_of(group, "groups", place, name)):
        at = f"{place}/groups/{i}"
        yield from _below(inner, absolute(_with_id(inner, at, name)["id"], id), at, needed, name)


def _list_of(group: Json, key: str, place: str, name: str) -> list[Any]:
    inner = group.get(key) or []
    if not isinstance(inner, list):
        raise BadAppFile(f"{name}: {place}/{key}: must be a list", remedy="make it a list")
    return inner


def _absolute_all(paths: Any, base: str) -> list[Any]:
    """Return the ids of a list as absolute ones; values that are no text stay for the scheduler to refuse."""
    listed = paths if isinstance(paths, list) else [] if paths is None else [paths]
    return [absolute(path, base) if isinstance(path, str) else path for path in listed]


def _pods_of(group: Any, base: str = ROOT) -> Iterator[tuple[str, str]]:
    """Yield (id of the group, id of the pod) for each pod of a group and of the groups below it."""
    if not isinstance(group, dict):
        return
    id = absolute(str(group.get("id") or ""), base)
    for pod in group.get("pods") or ():
        yield id, str(pod.get("id", "?") if isinstance(pod, dict) else pod)
    for inner in group.get("groups") or ():
        yield from _pods_of(inner, id)


def _apps_of(group: Any) -> Iterator[Json]:
    """Yield all apps of a group and below it, as far as the value has the form of a group."""
    if isinstance(group, dict):
        yield from (app for app in group.get("apps") or () if isinstance(app, dict))
        for inner in group.get("groups") or ():
            yield from _apps_of(inner)


def definition(value: Json) -> Json:
    """Return an app without the fields that are only printed."""
    return {key: item for key, item in value.items() if key not in PRINTED}


def _group(value: Json) -> Json:
    """Return a group without pods and fields that are only printed, recursively."""
    group = {key: item for key, item in value.items() if key not in ("version", "pods")}
    for key, inner in (("apps", definition), ("groups", _group)):
        if isinstance(group.get(key), list):
            group[key] = [inner(item) if isinstance(item, dict) else item for item in group[key]]
    return group
