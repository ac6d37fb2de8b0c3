"""Job arrays on the command line: display, selected tasks, and waiting for their end."""

import contextlib
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mesos_gpu.cli import output
from mesos_gpu.cli.interrupt import Terminated
from mesos_gpu.cli.reach.answers import Kind, ended
from mesos_gpu.cli.reach.refusals import Refused
from mesos_gpu.cli.waiting import INTERRUPTED, KILLED, be_patient, exit_code_of, outcome

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job
    from mesos_gpu.api.spec.tasks.array import Array
    from mesos_gpu.cli.client import Client

_MAX: Final = 1_000_000  # jobs of an array
_ARRAY: "Final[Kind[Array]]" = Kind("Array", "mesos_gpu.api.spec.tasks.array")
_SEVERAL: Final = "several-tasks"


def named(job: "Job") -> str:
    """Return the ID of a job, for an array with its indexes."""
    return job["id"] if job["array"] is None else f"{job['id']}[{job['array']}]"


def progress(job: "Job") -> str:
    """Return the state of a job, for an array with the numbers of ended tasks and of all tasks."""
    counts = job["array_counts"]
    if counts is None:
        return job["state"]
    return f"{job['state']} {counts['finished'] + counts['failed'] + counts['killed']}/{counts['tasks']}"


def array_of(client: "Client", wanted: str) -> "Array":
    """Return a job array or some of its tasks, with their jobs that exist."""
    return client.get(f"/v1/arrays/{quote(wanted, safe='')}?limit={_MAX}", _ARRAY)


def lines_of(client: "Client", job: "Job") -> list[tuple[str, object]]:
    """Return the lines that `show` adds for an array; empty for other jobs."""
    if job["array"] is None or job["array_counts"] is None:
        return []
    array = array_of(client, job["id"])
    return [("running", array["running"]), ("failed", array["failed"]), ("killed", array["killed"])]


def stay(client: "Client", job: "Job") -> int:
    """Follow an array to its end and show its progress; return the exit code. Ctrl-C and SIGTERM kill the array."""
    be_patient(client)
    output.note(f"job array {named(job)}; for its output: mesos-gpu logs {job['id']}")
    try:
        return _ended(_followed(client, job))
    except KeyboardInterrupt as signal:
        code = KILLED if isinstance(signal, Terminated) else INTERRUPTED
        output.note(f"killing job array {job['id']}; press Ctrl-C again to leave at once")
        with contextlib.suppress(KeyboardInterrupt):
            _ended(_followed(client, client.kill(job["id"])))
        return code
    finally:
        output.status_line.clear()


def _followed(client: "Client", job: "Job") -> "Job":
    for newer in client.follow(job):
        job = newer
        if output.status_line.live:
            output.status_line.show(
                f"{job['id']} ({output.span(time.time() - job['submitted_at'])}): {job['message']}"
            )
    return job


def _ended(job: "Job") -> int:
    output.note(outcome(job))
    return exit_code_of(job)


class Awaited:
    """A job, an array or some tasks of an array, whose end is waited for.

    Args:
        client: Client of the scheduler.
        wanted: ID or name that the user gave.

    Raises:
        Refused: Nothing has this ID or name, or it is ambiguous.
    """

    def __init__(self, client: "Client", wanted: str) -> None:
        self._client, self._wanted = client, wanted
        self.some: Array | None = None
        try:
            self.job = client.job(wanted)
        except Refused as error:
            if error.code != _SEVERAL:
                raise
            self.some = array_of(client, wanted)
            self.job = self.some["array"]

    @property
    def id(self) -> str:
        """ID of the job, or the user's text for some tasks of an array."""
        return self.job["id"] if self.some is None else self._wanted

    @property
    def document(self) -> "Job | Array":
        """The interface's document of the job or array."""
        return self.job if self.some is None else self.some

    @property
    def end(self) -> tuple[str, int] | None:
        """Final state and exit code; None while it has not ended."""
        if self.some is None:
            return (self.job["state"], exit_code_of(self.job)) if ended(self.job) else None
        if self.some["waiting"] or self.some["running"]:
            return None
        if self.some["failed"]:
            from mesos_gpu.model.arrays.array import EXIT_FAILED

            return "failed", EXIT_FAILED
        return ("killed", KILLED) if self.some["killed"] else ("finished", 0)

    def wait(self, deadline: float | None) -> None:
        """Wait until it has ended, or `deadline` (`time.monotonic()`) has passed."""
        while self.end is None:
            newer = next(self._client.follow(self.job, deadline=deadline), None)
            if newer is None:
                return
            self.job = newer
            if self.some is not None:
                self.some = array_of(self._client, self._wanted)
