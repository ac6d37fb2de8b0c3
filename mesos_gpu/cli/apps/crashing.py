"""Crashing apps: number of crashes, next start, latest exit and its output.

All commands show the scheduler's `ends` of an app by these functions.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli import output
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Json, Marathon

_LINES: Final = 5  # of stderr
_TAIL: Final = 4096  # bytes of stderr to read
_MAX_APPS: Final = 3  # apps below a list, each with a request for its output


def crashing(app: "Json") -> "Json | None":
    """Return `ends` of an app whose instances keep ending by themselves; None if they run."""
    ends: Json | None = app.get("ends")
    if not ends:
        return None
    recovered = app["tasksRunning"] >= app["instances"]  # for schedulers that do not report `crashing`
    return ends if ends.get("crashing", not (recovered and ends["inARow"] == 1)) else None


def ends_words(app: "Json") -> str:
    """Return a description of an app's crashes; "" if its instances run."""
    ends = crashing(app)
    return words_of(ends) if ends else ""


def words_of(ends: "Json") -> str:
    """Return a description of how often instances ended, how the last one did, and when the next one starts."""
    at, in_a_row = _on(ends["last"]), ends["inARow"]
    ago = output.age(ended_at(ends))
    left_s = next_in_s(ends)
    after = f"; the next one starts in {left_s:.0f} s" if left_s >= 0.5 else ""
    if in_a_row == 1:
        return f"an instance ended by itself{at} {ago} ago: {exit_words(ends)}{after}"
    return (
        f"its instances keep crashing, {in_a_row} times in a row, last{at} {ago} ago: "
        f"{exit_words(ends)}{after}"
    )


def exit_words(ends: "Json") -> str:
    """Return the reason of the latest end, with its exit code if there is one."""
    last = ends["last"]
    code = "" if last["exitCode"] is None else f" (exit code {last['exitCode']})"
    return f"{last['message']}{code}"


def ended_at(ends: "Json") -> float:
    """Return the time of the latest end, in seconds since the epoch."""
    from mesos_gpu.wire.marathon.moments import moment

    return moment(ends["last"]["timestamp"])


def next_in_s(ends: "Json") -> float:
    """Return the seconds until the next instance may start; 0 if nothing delays it."""
    from mesos_gpu.wire.marathon.moments import moment

    return max(0.0, moment(ends["nextAt"]) - time.time()) if ends["nextAt"] else 0.0


def facts(app: "Json") -> list[tuple[str, object]]:
    """Return restarts, the next start and the last exit of an app for a list of pairs; empty without an end."""
    ends = app.get("ends")
    if not ends:
        return []
    now = crashing(app)
    left_s = next_in_s(ends)
    return [
        ("restarts", f"{ends['inARow']} in a row" if now else None),
        ("next start", f"in {output.span(left_s)}" if now and left_s >= 0.5 else None),
        ("last exit", f"{output.age(ended_at(ends))} ago{_on(ends['last'])}: {exit_words(ends)}"),
    ]


def show_crashing(marathon: "Marathon", apps: "Sequence[Json]") -> None:
    """Print to stderr how instances of the first crashing apps ended, and their last lines of stderr."""
    crashes = [app for app in apps if crashing(app)]
    for app in crashes[:_MAX_APPS]:
        output.note(f"{app['id']}: {ends_words(app)}")
        show_last_words(marathon, app)
    if len(crashes) > _MAX_APPS:
        output.note(f"{len(crashes) - _MAX_APPS} more crashing apps; see each with: mesos-gpu why ID")


def show_last_words(marathon: "Marathon", app: "Json") -> None:
    """Print the last lines of stderr of the instance that ended last."""
    for line in last_words(marathon, app):
        output.note(f"  stderr: {line}")


def last_words(marathon: "Marathon", app: "Json") -> list[str]:
    """Return the last lines of stderr of the instance that ended last, or one line that tells why it is unreadable."""
    return list(_read(marathon, app["ends"]["last"])) if app.get("ends") else []


def _read(marathon: "Marathon", last: "Json") -> Iterator[str]:
    try:
        logs = marathon.client.logs(
            last["jobId"], stream="stderr", offset=-_TAIL, length=_TAIL, task_id=last["taskId"]
        )
    except MesosGpuError as error:
        yield f"(stderr of {last['taskId']} cannot be read: {error.what})"
        return
    yield from logs["data"].splitlines()[-_LINES:]


def _on(last: "Json") -> str:
    return f" on {last['host']}" if last["host"] else ""
