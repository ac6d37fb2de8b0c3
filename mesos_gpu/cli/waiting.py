"""Messages and exit codes for jobs that wait or have ended; patience with the scheduler."""

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
UNSURE = "interrupted while submitting; check with `mesos-gpu ps` whether the job was submitted"
_MAX_ASKED = 20  # submitted jobs that are checked, with one request each
_LOOKS = 2  # the first call comes at once, when every job waits


def exit_code_of(job: "Job") -> int:
    """Return the exit code for an ended job: its own, or one for the reason why it has none."""
    if job["state"] == "killed":
        return KILLED
    if job["state"] == "finished":
        return job["exit_code"] or 0
    return job["exit_code"] or NO_EXIT_CODE


def outcome(job: "Job") -> str:
    """Return a description of how a job ended."""
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    why = f": {job['message']}" if job["message"] else ""
    return f"job {job['id']} {job['state']}{code}{why}"


def be_patient(client: "Client") -> None:
    """Let a client survive a restart of the scheduler from now on, since it has answered once."""
    client.patience_s = PATIENCE_S


def show_waiting(client: "Client") -> "Callable[[Job], None]":
    """Return the function that `follow` calls while a job waits: it shows the reason in the status line or once as a
    note."""
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
    """Warn of new jobs that can never run on the current nodes; they wait all the same, since nodes may be added."""
    from mesos_gpu.cli.fit import short_gpus  # imports rich

    for job in jobs[:_MAX_ASKED]:
        with suppress(MesosGpuError):  # the job was accepted, which is what matters
            why = client.why(job["id"])
            if not why["can_ever_run"]:
                summary = short_gpus(why["summary"])
                output.note(f"{job['id']} can never run on the current nodes: {summary}")


def _why(client: "Client", job: "Job") -> str:
    from mesos_gpu.cli.fit import short_gpus  # imports rich

    try:
        why = client.why(job["id"])
    except MesosGpuError:
        return "waits"  # the next request that matters reports the error
    never = "" if why["can_ever_run"] else "it can never run on the current nodes, press Ctrl-C to end it: "
    return never + short_gpus(why["summary"])
