"""`mesos-gpu app list`, `show`, `tasks` and `versions`, with reasons why an app is not fully running."""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.apps.crashing import (
    crashing,
    ended_at,
    ends_words,
    facts,
    next_in_s,
    show_crashing,
    show_last_words,
)
from mesos_gpu.cli.fit import Fit, short_gpus
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import print_table
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.share import gpus_counted
from mesos_gpu.cli.types import APP, VERSION
from mesos_gpu.model.shares.units import milli_of, number_of
from mesos_gpu.wire.listing.filters import By, labels_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Why
    from mesos_gpu.cli.marathon import Json, Marathon

_YES = {True: "yes", False: "no", None: None}


_APPS: Final[Listing["Json", "Json"]] = Listing(
    columns=(
        Col("ID", lambda app: app["id"]),
        Col("RUNNING", lambda app: f"{app['tasksRunning']}/{app['instances']}"),
        Col("HEALTHY", lambda app: app["tasksHealthy"] if app.get("healthChecks") else None),
        Col("RESTARTS", lambda app: _of_crash(app, lambda ends: ends["inARow"]), rare=True),
        Col(
            "NEXT_START",
            lambda app: _next_start(app),
            lambda app: _of_crash(app, next_in_s),
            rare=True,
            moves=True,
        ),
        Col(
            "LAST_EXIT",
            lambda app: _last_exit(app),
            lambda app: _of_crash(app, ended_at),
            rare=True,
            moves=True,
        ),
        Col("QUEUE", lambda app: (app.get("gpu") or {}).get("queue"), wide=True),
        Col("CPUS", lambda app: app["cpus"]),
        Col("MEM_MIB", lambda app: app["mem"]),
        Col("GPUS", lambda app: _counted(app)),
        aged("CHANGED", lambda app: _moment(app["version"])),
        Col("DEPLOYING", lambda app: "yes" if app["deployments"] else None),
        Col("LABELS", lambda app: ",".join(_labels(app)), wide=True),
        Col("RUNS", lambda app: _runs(app)),
    ),
    id=lambda app: app["id"],
    rows=lambda app: (app,),
    filters={By.NAME: lambda app: (app["id"], app["id"].rpartition("/")[2])},
    fit=Fit(
        cut=("LAST_EXIT", "RUNS"),
        leave=(
            "MEM_MIB",
            "CPUS",
            "CHANGED",
            "RUNS",
            "GPUS",
            "DEPLOYING",
            "HEALTHY",
            "NEXT_START",
            "LAST_EXIT",
        ),
    ),
)


@click.command("list")
@click.argument("group", required=False, type=APP)
@click.option(
    "--label", metavar="SELECTOR", help="Only apps with these labels, such as 'tier==web,team in (a,b)'."
)
@list_options(_APPS)
@api_command
def list_apps(app: App, group: str | None, label: str | None, asked: "Asked[Json, Json]") -> None:
    """List the apps.

    With GROUP, such as /shop, only apps below it. If instances of an app crash, columns show how often in a row
    (RESTARTS), when the next one starts and how the last one ended; its last lines of stderr follow.
    """
    if group and label:
        raise click.UsageError("GROUP and --label exclude each other")
    marathon = app.marathon()
    chosen = group or label or asked.filtered
    empty = "No such app." if chosen else "No apps; create one with: mesos-gpu app create FILE"

    def load() -> "Seen[Json]":
        apps = marathon.apps(group, label=label)
        return Seen(apps, empty, below=lambda shown: show_crashing(marathon, shown))

    show_list(asked, load)


def _of_crash(app: "Json", fact: "Callable[[Json], Any]") -> Any:
    """Return a fact computed from `ends` of a crashing app; None for other apps."""
    ends = crashing(app)
    return None if ends is None else fact(ends)


def _next_start(app: "Json") -> str | None:
    left_s = _of_crash(app, next_in_s)
    return output.span(left_s) if left_s else None


def _last_exit(app: "Json") -> str | None:
    ends = crashing(app)
    if ends is None:
        return None
    code, age = ends["last"]["exitCode"], output.age(ended_at(ends))
    exit_code = "" if code is None else f"exit {code}, "
    return f"{exit_code}{age} ago: {ends['last']['message']}"


def _labels(app: "Json") -> list[str]:
    return labels_of(app.get("labels", {}))


def _moment(stamp: str | None) -> float | None:
    from mesos_gpu.wire.marathon.moments import moment

    return None if stamp is None else moment(stamp)


def _image(app: "Json") -> str | None:
    container = app.get("container") or {}
    image: str | None = (container.get("docker") or {}).get("image")
    return image


def _command(app: "Json") -> str | None:
    return app.get("cmd") or shlex.join(app.get("args") or ()) or None


def _runs(app: "Json") -> str:
    return ": ".join(filter(None, (_image(app), _command(app))))


@click.command()
@click.argument("app_id", metavar="ID", type=APP)
@click.option(
    "--version",
    type=VERSION,
    metavar="VERSION",
    help="Show the definition of this version, as listed by `app versions`.",
)
@json_option
@api_command
def show(app: App, app_id: str, version: str | None, as_json: bool) -> None:
    """Show all details of an app.

    Of the less common fields only those that differ from their defaults are shown. --json prints all, in the format
    of Marathon's interface, which `app create` and `app update` accept.
    """
    marathon = app.marathon()
    definition = marathon.version(app_id, version) if version else marathon.app(app_id)
    if as_json:
        output.document(definition)
        return
    now = [] if version else _now(marathon, definition)
    pairs = (("id", definition["id"]), *now, *_definition(definition))
    output.pairs([(name, value) for name, value in pairs if value not in (None, "")])
    if version:
        return
    if definition["tasks"]:
        click.echo()
        print_table(_TASKS, _tasks(marathon, definition))
    if crashing(definition):
        show_last_words(marathon, definition)


def _now(marathon: "Marathon", app: "Json") -> list[tuple[str, object]]:
    """Return labels and values about the current state of an app: instances, deployment, last failure, changes."""
    counts = [f"{app['tasksRunning']} of {app['instances']} running"]
    counts += [f"{app['tasksStaged']} starting"] if app["tasksStaged"] else []
    if app.get("healthChecks"):
        counts += [f"{app['tasksHealthy']} healthy", f"{app['tasksUnhealthy']} unhealthy"]
    failure = app.get("lastTaskFailure") if not app.get("ends") else None
    return [
        ("instances", ", ".join(counts)),
        *facts(app),
        ("deployment", "; ".join(_deploying(marathon, app["id"]) if app["deployments"] else ())),
        (
            "last failure",
            f"{output.stamp(_moment(failure['timestamp']))}{_on(failure['host'])}: {failure['message']}"
            if failure
            else None,
        ),
        ("scaled", output.stamp(_moment(app["versionInfo"]["lastScalingAt"]))),
        ("changed", output.stamp(_moment(app["versionInfo"]["lastConfigChangeAt"]))),
    ]


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _deploying(marathon: "Marathon", id: str) -> list[str]:
    return [
        f"{deployment['id']} {deployment['waiting'].get(id, '')}".strip()
        for deployment in marathon.deployments()
        if id in deployment["affectedApps"]
    ]


def _definition(app: "Json") -> list[tuple[str, object]]:
    """Return an app's fields for display; fields without a display name only if they differ from their defaults."""
    from mesos_gpu.cli.apps.appfile import PRINTED
    from mesos_gpu.model.apps.app import App as Definition
    from mesos_gpu.wire.marathon.app import app_to_json

    usual = app_to_json(Definition(app["id"]))
    rest = [key for key in sorted(app.keys() - _SHOWN - PRINTED) if app[key] != usual.get(key)]
    container = {key: value for key, value in (app.get("container") or {}).items() if value}
    return [
        ("version", app["version"]),
        ("wanted", app["instances"]),
        ("command", _command(app)),
        ("image", f"{_image(app)} ({container['type']})" if _image(app) else None),
        ("cpus", app["cpus"]),
        ("memory", f"{app['mem']} MiB"),
        ("gpus", _gpus(app)),
        ("env", shlex.join(f"{key}={_text(value)}" for key, value in sorted(app.get("env", {}).items()))),
        ("labels", shlex.join(_labels(app))),
        ("constraints", ", ".join(" ".join(words) for words in app.get("constraints", ()))),
        ("container", _words(container)),
        *((key, _words(app[key])) for key in rest),
    ]


_SHOWN = frozenset(
    ("id", "cmd", "args", "cpus", "mem", "gpus", "instances", "env", "labels", "constraints", "container",
     "role")
)  # fmt: skip


def _gpus(app: Mapping[str, Any]) -> float:
    """Return the GPUs of each instance; for clients that know whole numbers only, a label holds the share of a GPU."""
    from mesos_gpu.model.apps.app import GPU_SHARE

    gpus: float = app["gpus"]
    share = milli_of(app.get("labels", {}).get(GPU_SHARE, "")) if gpus == 1 else None
    return gpus if share is None else number_of(share)


def _counted(app: Mapping[str, Any]) -> object:
    """Return the GPUs of each instance as limits count them; an exact share counts as a part of its GPUs."""
    return gpus_counted(_gpus(app), (app.get("gpu") or {}).get("compute_pct"))


def _words(value: object) -> str:
    """Return a JSON value as text for display."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(inner)}" for key, inner in value.items() if inner not in ({}, []))
    if isinstance(value, list):
        return "; ".join(map(_words, value))
    return _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _healthy(task: "Json") -> str | None:
    from mesos_gpu.cli.apps.rolling import healthy

    return _YES[healthy(task)]


def _checked(task: "Json") -> str | None:
    """Return the latest result of the app's check as text; None before the first result."""
    for kind, values in task.get("checkResult", {}).items():
        if kind == "tcp":
            return "tcp connected" if values["succeeded"] else "tcp refused"
        name = "status" if kind == "http" else "exit code"
        return f"{kind} {name} {next(iter(values.values()))}" if values else f"{kind} without {name}"
    return None


def _state(task: "Json") -> str:
    return str(task["state"]).removeprefix("TASK_").lower()


def _current(task: "Json") -> str | None:
    return _YES[task.get(_IS_CURRENT)]


_IS_CURRENT: Final = "current"  # key added to tasks for display
_TASKS: Final[Listing["Json", "Json"]] = Listing(
    columns=(
        Col("TASK", lambda task: task["id"]),
        Col("STATE", _state),
        Col("HEALTHY", _healthy),
        Col("CHECK", _checked, wide=True),
        Col("HOST", lambda task: task["host"]),
        Col("PORTS", lambda task: " ".join(map(str, task["ports"]))),
        aged("AGE", lambda task: _moment(task["stagedAt"])),
        Col("CURRENT", _current),
        Col("VERSION", lambda task: task.get("version"), wide=True),
        Col("GPUS", lambda task: " ".join(task["gpuIds"])),
    ),
    id=lambda task: task["id"],
    rows=lambda task: (task,),
    filters={By.STATE: lambda task: (_state(task),), By.NODE: lambda task: (task["host"],)},
    fit=Fit(leave=("GPUS", "CURRENT", "AGE", "HEALTHY", "PORTS"), ids=("TASK", "GPUS"), hosts=("HOST",)),
)


@click.command()
@click.argument("app_id", metavar="ID", type=APP)
@list_options(_TASKS)
@api_command
def tasks(app: App, app_id: str, asked: "Asked[Json, Json]") -> None:
    """List the tasks of an app and their hosts.

    Below the list it explains why instances without a task wait. --json prints Marathon's tasks, each with its GPUs
    as `gpuIds`.
    """
    marathon = app.marathon()

    def load() -> "Seen[Json]":
        definition = marathon.app(app_id)
        return Seen(
            _tasks(marathon, definition),
            "No such task." if asked.filtered else "The app has no task.",
            lambda tasks: [
                {key: value for key, value in task.items() if key != _IS_CURRENT} for task in tasks
            ],
            lambda _tasks: _tell_missing(marathon, definition),
        )

    show_list(asked, load)


def _tasks(marathon: "Marathon", app: "Json") -> "list[Json]":
    """Return tasks with their GPUs and whether each is of the current version; oldest first."""
    held, current = _held(marathon, app), app["versionInfo"]["lastConfigChangeAt"]
    return [
        {**task, "gpuIds": held.get(task["id"], []), _IS_CURRENT: task.get("version") == current}
        for task in sorted(app["tasks"], key=lambda task: str(task["stagedAt"]))
    ]


def _tell_missing(marathon: "Marathon", definition: "Json") -> None:
    """Note why instances have no task, and why they end."""
    ends = ends_words(definition)
    missing = definition["instances"] - len(definition["tasks"])
    if missing > 0:
        why = ends or short_gpus(_why_missing(marathon, definition))
        output.note(f"{missing} of {definition['instances']} instances have no task: {why}")
    elif ends:
        output.note(ends)
    if ends:
        show_last_words(marathon, definition)


def why_of(marathon: "Marathon", id: str) -> "tuple[str, Why | None]":
    """Return why an app is not fully running, and the explanation for one of its waiting instances if any."""
    definition = marathon.app(id)
    reasons = [f"deployment {deployment}" for deployment in _deploying(marathon, id)]
    if reasons and not definition.get("ends") and (failure := definition.get("lastTaskFailure")):
        reasons.append(f"the last failed instance{_on(failure['host'])}: {failure['message']}")
    waiting = [job for job in marathon.client.jobs(states=["pending"]) if job["app"] == id]
    if ends := ends_words(definition):
        reasons.append(ends)
    stand = f"{definition['tasksRunning']} of {definition['instances']} instances run"
    return "; ".join([stand, *reasons]), marathon.client.why(waiting[-1]["id"]) if waiting else None


def _held(marathon: "Marathon", app: "Json") -> Mapping[str, list[str]]:
    """Return the GPUs of each task, held whole or in shares."""
    held: dict[str, list[str]] = {}
    for gpu in marathon.client.gpus() if app.get("gpus") else ():
        for task_id in {gpu["task_id"] or "", *(share["task_id"] for share in gpu["shares"])}:
            held.setdefault(task_id, []).append(gpu["uuid"])
    return held


def _why_missing(marathon: "Marathon", app: "Json") -> str:
    for entry in marathon.blocked():
        if entry["app"]["id"] == app["id"]:
            return entry["processedOffersSummary"].get("why", "they wait for free capacity")
    return "; ".join(_deploying(marathon, app["id"])) or "they are about to start"


_VERSIONS: Final[Listing["Json", "Json"]] = Listing(
    columns=(
        Col("VERSION", lambda record: record["version"]),
        aged("AGE", lambda record: _moment(record["version"])),
        Col("NOW", lambda record: "yes" if record["now"] else None),
    ),
    id=lambda record: record["version"],
    rows=lambda record: (record,),
    filters={},
)


@click.command()
@click.argument("app_id", metavar="ID", type=APP)
@list_options(_VERSIONS)
@api_command
def versions(app: App, app_id: str, asked: "Asked[Json, Json]") -> None:
    """List the versions of an app, the latest first."""
    marathon = app.marathon()

    def load() -> "Seen[Json]":
        version_ids, now = marathon.versions(app_id), marathon.app(app_id)["version"]
        records = [{"version": version, "now": version == now} for version in version_ids]
        return Seen(records, "", lambda listed: [record["version"] for record in listed])

    show_list(asked, load)
