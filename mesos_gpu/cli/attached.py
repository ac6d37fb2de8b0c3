"""`mesos-gpu run` after the job was accepted: its output, its end, and Ctrl-C."""

import contextlib

from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.shapes import Job
from mesos_gpu.cli.stream import Follower
from mesos_gpu.cli.waiting import be_patient, exit_code_of, outcome, status_of_waiting
from mesos_gpu.errors import MesosGpuError

INTERRUPTED = 130


def stay_with(client: Client, job: Job) -> int:
    """Copy the job's output until it ends; the exit code for this process.

    Raises:
        BrokenPipeError: Nobody reads our output any more; the job has been asked to end, as a local
            command would by SIGPIPE.
        Unreachable: The scheduler stayed away for too long.
    """
    be_patient(client)
    if output.status_line.live:
        output.note(f"job {job['id']}")
    follower = Follower(client, job, {"stdout": False, "stderr": True}, launch=None)
    try:
        return _until_the_end(client, follower)
    except BrokenPipeError:
        with contextlib.suppress(MesosGpuError):  # nobody is there to be told
            client.patience_s = 0.0
            client.kill(job["id"])
        raise
    finally:
        output.status_line.clear()


def _until_the_end(client: Client, follower: Follower) -> int:
    try:
        job = follower.follow(status_of_waiting(client))
    except KeyboardInterrupt:
        return _kill(client, follower)
    if job["state"] != "finished":
        output.note(outcome(job))
    return exit_code_of(job)


def _kill(client: Client, follower: Follower) -> int:
    job_id = follower.job["id"]
    try:
        output.note(f"killing job {job_id}; Ctrl-C again leaves at once")
        follower.job = client.kill(job_id)
        output.note(outcome(follower.follow()))
    except KeyboardInterrupt:
        output.note(f"left; see what becomes of it with `mesos-gpu show {job_id}`")
    return INTERRUPTED
