"""An app whose instances end again and again: what is said of it."""

import time
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli import output
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Json, Marathon

_LINES: Final = 5  # of stderr
_TAIL: Final = 4096  # bytes of it that are read


def ends_words(app: "Json") -> str:
    """That its instances end again and again, or that one has no successor yet; "": it is not so."""
    ends = app.get("ends")
    recovered = app["tasksRunning"] >= app["instances"]
    return "" if not ends or (recovered and ends["inARow"] == 1) else words_of(ends)


def words_of(ends: "Json") -> str:
    """How often instances ended, how the last one did, and when the next one starts."""
    from mesos_gpu.wire.marathon.moments import moment

    last, in_a_row = ends["last"], ends["inARow"]
    at = f" on {last['host']}" if last["host"] else ""
    ago = output.age(moment(last["timestamp"]))
    code = "" if last["exitCode"] is None else f" (exit code {last['exitCode']})"
    said = f"{last['message']}{code}"
    left_s = moment(ends["nextAt"]) - time.time() if ends["nextAt"] else 0.0
    after = f"; the next one starts in {left_s:.0f} s" if left_s >= 0.5 else ""
    if in_a_row == 1:
        return f"an instance ended by itself{at} {ago} ago: {said}{after}"
    return (
        f"its instances end again and again, {in_a_row} times in a row, the last{at} {ago} ago: {said}{after}"
    )


def last_words(marathon: "Marathon", app: "Json") -> list[str]:
    """The last lines of stderr of the instance that ended last; none: there are none, or its agent has them no more."""
    ends = app.get("ends")
    if not ends:
        return []
    last = ends["last"]
    try:
        logs = marathon.client.logs(
            last["jobId"], stream="stderr", offset=-_TAIL, length=_TAIL, task_id=last["taskId"]
        )
    except MesosGpuError as error:
        return [f"(stderr of {last['taskId']} cannot be read: {error.what})"]
    return logs["data"].splitlines()[-_LINES:]
