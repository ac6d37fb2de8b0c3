"""What commands tell of jobs that wait or have ended, and their exit codes; patience with the scheduler."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mesos_gpu.cli import output
from mesos_gpu.cli.reach.answers import PATIENCE_S
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job
    from mesos_gpu.cli.client import Client

INTERRUPTED, KILLED, NO_EXIT_CODE = 130, 143, 125
UNSURE = "interrupted while submitting; see with `mesos-gpu ps` whether the job was accepted"
_MAX_ASKED = 20  # jobs that are asked about after they were submitted: one request each
_LOOKS = 2  # the first is at once: every job waits then


def exit_code_of(job: "Job") -> int:
    """The exit code for a job that has ended: its own, or one that says why it has none."""
    if job["state"] == "killed":
        return KILLED
    if job["state"] == "finished":
        return job["exit_code"] or 0
    return job["exit_code"] or NO_EXIT_CODE


def outcome(job: "Job") -> str:
    """How a job ended, in words."""
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    why = f": {job['message']}" if job["message"] else ""
    return f"job {job['id']} {job['state']}{code}{why}"


def be_patient(client: "Client") -> None:
    """Outlive a restart of the scheduler from now on: it has answered once."""
    client.patience_s = PATIENCE_S


def show_waiting(client: "Client") -> "Callable[[Job], None]":
    """Return what `follow` calls while a job waits: it shows the reason in a status line, or prints it once."""
    return _status_of_waiting(client) if output.status_line.live else _note_of_waiting(client)


def _status_of_waiting(client: "Client") -> "Callable[[Job], None]":
    def show(job: "Job") -> None:
        reason = f"is {job['state']}" + (f" on {job['hostname']}" if job["hostname"] else "")
        if job["state"] == "pending":
            reason = _why(client, job)
        output.status_line.show(f"{job['id']} ({output.span(time.time() - job['submitted_at'])}): {reason}")

    return show


def _note_of_waiting(client: "Client") -> "Callable[[Job], None]":
    looks = 0

    def say(job: "Job") -> None:
        nonlocal looks
        looks += 1
        if looks == _LOOKS and job["state"] == "pending" and not job["launches"]:
            output.note(f"job {job['id']}: {_why(client, job)}")

    return say


def warn_of_never(client: "Client", jobs: "Sequence[Job]") -> None:
    """Tell which of some new jobs can never run on the nodes that are there now, and why; they wait all the same, as
    nodes may come."""
    from mesos_gpu.cli.fit import short_gpus  # brings rich

    for job in jobs[:_MAX_ASKED]:
        with suppress(MesosGpuError):  # it was taken in, which is what counts
            why = client.why(job["id"])
            if not why["can_ever_run"]:
                said = short_gpus(why["summary"])
                output.note(f"{job['id']} can never run on the nodes that are there now: {said}")


def _why(client: "Client", job: "Job") -> str:
    from mesos_gpu.cli.fit import short_gpus  # brings rich

    try:
        why = client.why(job["id"])
    except MesosGpuError:
        return "waits"  # only a comfort: the call that matters follows, and speaks up
    never = (
        "" if why["can_ever_run"] else "it can never run on the nodes that are there now, Ctrl-C ends it: "
    )
    return never + short_gpus(why["summary"])
