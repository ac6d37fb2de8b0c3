"""Following a deployment until it is over: a progress bar on a terminal, else a line for each change."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.apps.crashing import last_words, words_of
from mesos_gpu.cli.client import PATIENCE_S, Refused
from mesos_gpu.errors import Conflict, MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Deployment, Json, Marathon

_FIRST_PAUSE_S, _PAUSE_S = 0.05, 0.5
_MAX_ASKED: Final = 10  # apps of one step that are examined, with one request each
_BAR: Final = 1000
_LOOK_S: Final = 2.0  # time to watch instances without health checks after a deployment
_STILL_S: Final = 15.0  # after which an unchanged line is repeated with the reason
_VERBS: Final = {
    "StartApplication": "add",
    "ScaleApplication": "scale",
    "RestartApplication": "replace",
    "StopApplication": "stop",
}


class TimedOut(MesosGpuError):
    """Waiting for a deployment timed out; the deployment continues."""

    exit_code = 124


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """Progress of a deployment. `share` is 0 to 1 of the whole; `up` describes the instances of the current step."""

    step: str
    up: str
    share: float
    reason: str


def follow(
    marathon: "Marathon",
    begun: "Deployment",
    *,
    deadline: float,
    timeout_s: float,
    to_stderr: bool,
    undoes: bool,
) -> None:
    """Wait until a deployment in progress is over; `deadline` is `timeout_s` after the beginning.

    A deployment that undoes another (`undoes`) restores versions, so its apps are not compared with it afterwards.

    Raises:
        TimedOut: The deployment is not over at `deadline` (`time.monotonic()`); with the reason.
        Conflict: The deployment is over, but its apps are not as planned: it was undone, or another change was made.
    """
    marathon.client.patience_s = PATIENCE_S
    id, last = begun["id"], begun
    pause_s = _FIRST_PAUSE_S
    with _hint_on_interrupt(id), _shown(to_stderr=to_stderr) as screen:
        while (deployment := find(marathon, id)) is not None:
            last = deployment
            stand = stand_of(marathon, deployment)
            screen.show(stand)
            if time.monotonic() >= deadline:
                raise TimedOut(
                    f"deployment {id} is not finished after {timeout_s:g} s: {reason_of(marathon, deployment)}",
                    remedy=f"it continues: mesos-gpu deployment show {id}; to undo it: mesos-gpu deployment stop {id}",
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S)
        screen.done()
    if not undoes:
        _check(marathon, last)
        _look_after(marathon, last)


def find(marathon: "Marathon", id: str) -> "Deployment | None":
    """Return a deployment in progress; None if it is over."""
    return next((deployment for deployment in marathon.deployments() if deployment["id"] == id), None)


@contextmanager
def _hint_on_interrupt(id: str) -> Iterator[None]:
    """Say at Ctrl-C that the deployment continues, and how to undo it."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(f"deployment {id} continues; to undo it: mesos-gpu deployment stop {id}")
        raise


def _check(marathon: "Marathon", over: "Deployment") -> None:
    stopped = {
        a["app"] for step in over["steps"] for a in step["actions"] if a["action"] == "StopApplication"
    }
    for id in over["affectedApps"]:
        app = app_if_any(marathon, id)
        as_wanted = app is None if id in stopped else app is not None and app["version"] == over["version"]
        if not as_wanted:
            raise Conflict(
                f"deployment {over['id']} is over, but {id} is not in the planned state: it was undone, or {id} was "
                "changed again",
                remedy=f"look at it with: mesos-gpu app show {id}",
            )


def _look_after(marathon: "Marathon", over: "Deployment") -> None:
    """Watch new instances without health checks, which count as up as soon as they run: some crash right after.

    Raises:
        Conflict: An instance of the deployment has ended by itself.
    """
    apps = [app for id in over["affectedApps"][:_MAX_ASKED] if (app := app_if_any(marathon, id))]
    new = [
        app
        for app in apps
        if app["instances"] and app["versionInfo"]["lastConfigChangeAt"] >= over["version"]
    ]
    until = time.monotonic() + (_LOOK_S if any(not app.get("healthChecks") for app in new) else 0.0)
    while new:
        for app in new:
            state = app_if_any(marathon, app["id"]) or {}
            if ends := state.get("ends"):
                words = "; ".join([words_of(ends), *last_words(marathon, state)])
                raise Conflict(
                    f"deployment {over['id']} is over, but {app['id']} does not stay up: {words}",
                    remedy=f"see mesos-gpu why {app['id']}; to go back: mesos-gpu app rollback {app['id']}",
                )
        if time.monotonic() >= until:
            return
        time.sleep(_PAUSE_S)


def app_if_any(marathon: "Marathon", id: str) -> "Json | None":
    """Return an app; None if it does not exist."""
    try:
        return marathon.app(id)
    except Refused as err:
        if err.http_status != 404:
            raise
        return None


# --- how far it is


def stand_of(marathon: "Marathon", deployment: "Deployment") -> RolloutProgress:
    """Return the progress of a deployment."""
    actions = deployment["currentActions"]
    counts = []
    for action in actions[:_MAX_ASKED]:
        app = app_if_any(marathon, action["app"])
        if app is not None and action["action"] != "StopApplication":
            counts.append(_count(app))
    up, wanted, in_all = (sum(count[i] for count in counts) for i in range(3))
    done = deployment["currentStep"] - 1 + (up / in_all if in_all else 0.0)
    reason = "; ".join(f"{app} {why}" for app, why in sorted(deployment["waiting"].items()))
    step = f"step {deployment['currentStep']} of {deployment['totalSteps']}: {what(actions)}"
    return RolloutProgress(
        step, f"{up} of {wanted} up" if wanted else "", done / deployment["totalSteps"], reason
    )


def what(actions: Sequence[Any]) -> str:
    """Return a description of actions."""
    words: dict[str, list[str]] = {}
    for action in actions:
        words.setdefault(_VERBS.get(action["action"], action["action"]), []).append(action["app"])
    return ", ".join(f"{verb} {_some(apps)}" for verb, apps in words.items())


def _some(apps: list[str], most: int = 3) -> str:
    return " ".join(apps[:most]) + (f" and {len(apps) - most} more" if len(apps) > most else "")


def _count(app: "Json") -> tuple[int, int, int]:
    """Return the running instances of the new version, the planned number, and that number plus those to be removed."""
    new = [task for task in app["tasks"] if task.get("version") == app["versionInfo"]["lastConfigChangeAt"]]
    up, wanted = sum(is_up(app, task) for task in new), app["instances"]
    going = len(app["tasks"]) - len(new) + max(0, len(new) - wanted)
    return min(up, wanted), wanted, wanted + going


def is_up(app: "Json", task: "Json") -> bool:
    """Return whether a task runs and is healthy by its checks, if it has any."""
    return task["state"] == "TASK_RUNNING" and (not app.get("healthChecks") or healthy(task) is True)


def healthy(task: "Json") -> bool | None:
    """Return the result of all checks; None if there is no result yet."""
    results = task["healthCheckResults"]
    return all(result["alive"] for result in results) if results else None


def reason_of(marathon: "Marathon", deployment: "Deployment") -> str:
    """Return why a deployment is not over: what each app waits for, why instances are not placed, how they failed."""
    blocked = {
        entry["app"]["id"]: entry["processedOffersSummary"].get("why", "") for entry in marathon.blocked()
    }
    reasons = []
    for id in sorted({action["app"] for action in deployment["currentActions"]})[:_MAX_ASKED]:
        app = app_if_any(marathon, id) or {}
        failure = app.get("lastTaskFailure")
        waiting = deployment["waiting"].get(id, "")
        parts = ["" if waiting in blocked.get(id, "") else waiting, blocked.get(id, "")]
        if failure and failure["timestamp"] >= deployment["version"]:
            at = f" on {failure['host']}" if failure["host"] else ""
            parts.append(f"the last failed instance{at}: {failure['message']}")
        reasons += [f"{id} " + "; ".join(filter(None, parts))] if any(parts) else []
    return ". ".join(reasons) or "no reason is known"


# --- display


class _Screen(Protocol):
    def show(self, stand: RolloutProgress) -> None:
        """Display the progress."""

    def done(self) -> None:
        """End the display: the deployment is over."""


@contextmanager
def _shown(*, to_stderr: bool) -> Iterator[_Screen]:
    stream = sys.stderr if to_stderr else sys.stdout
    if not stream.isatty():
        yield _Lines(to_stderr=to_stderr)
        return
    with click.progressbar(
        length=_BAR,
        file=stream,
        width=20,
        show_eta=False,
        item_show_func=lambda stand: _cut(stand) if stand else "",
    ) as bar:
        yield _Bar(bar)


def _cut(stand: RolloutProgress) -> str:
    import shutil

    text = output.clean(", ".join(filter(None, (stand.step, stand.up, stand.reason))))
    room = shutil.get_terminal_size().columns - 35  # room for the bar and its percentage
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def show(self, stand: RolloutProgress) -> None:
        self._bar.current_item = stand
        self._bar.update(max(0, round(_BAR * stand.share) - self._bar.pos))  # a bar never goes back
        self._bar.render_progress()  # `update` does not redraw an unchanged bar

    def done(self) -> None:
        self._bar.current_item = RolloutProgress("done", "", 1.0, "")
        self._bar.update(_BAR - self._bar.pos)
        self._bar.render_progress()


class _Lines:
    def __init__(self, *, to_stderr: bool) -> None:
        self._say = output.note if to_stderr else output.line
        self._said, self._said_at = "", 0.0

    def show(self, stand: RolloutProgress) -> None:
        text = ", ".join(filter(None, (stand.step, stand.up)))
        stands_still = text == self._said
        if stands_still and time.monotonic() < self._said_at + _STILL_S:
            return
        self._said, self._said_at = text, time.monotonic()
        self._say(f"{text}: {stand.reason}" if stands_still and stand.reason else text)

    def done(self) -> None:
        """Do nothing: the command reports the end."""
