"""What the commands that stay with a job share: patience, the status line, the exit code."""

import time
from collections.abc import Callable

from mesos_gpu.api.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.client import PATIENCE_S, Client
from mesos_gpu.errors import MesosGpuError

KILLED, NO_EXIT_CODE = 143, 125


def exit_code_of(job: Job) -> int:
    """The exit code for a job that has ended: its own, or one that says why it has none."""
    if job["state"] == "killed":
        return KILLED
    if job["state"] == "finished":
        return job["exit_code"] or 0
    return job["exit_code"] or NO_EXIT_CODE


def outcome(job: Job) -> str:
    """How a job ended, in words."""
    code = "" if job["exit_code"] is None else f", exit code {job['exit_code']}"
    why = f": {job['message']}" if job["message"] else ""
    return f"job {job['id']} {job['state']}{code}{why}"


def be_patient(client: Client) -> None:
    """From now on, outlive a restart of the scheduler: it has answered once."""
    client.patience_s = PATIENCE_S


def status_of_waiting(client: Client) -> Callable[[Job], None]:
    """Shows why a job waits while it does, for `Follower.follow`."""

    def show(job: Job) -> None:
        if not output.status_line.live:
            return
        reason = f"is {job['state']}" + (f" on {job['hostname']}" if job["hostname"] else "")
        if job["state"] == "pending":
            try:
                reason = client.why(job["id"])["summary"]
            except MesosGpuError:
                reason = "waits"  # only a comfort: the call that matters follows, and speaks up
        output.status_line.show(f"{job['id']} ({output.span(time.time() - job['submitted_at'])}): {reason}")

    return show
