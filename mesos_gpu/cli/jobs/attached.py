"""`mesos-gpu run` while it stays: the job's output, its end, Ctrl-C and SIGTERM."""

import contextlib
from collections.abc import Mapping

from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.interrupt import Terminated, held_interrupt, terminated
from mesos_gpu.cli.jobs.stream import STREAMS, Follower, Stream
from mesos_gpu.cli.stdin import watch_stdin
from mesos_gpu.cli.waiting import (
    KILLED,
    be_patient,
    exit_code_of,
    note_of_waiting,
    outcome,
    status_of_waiting,
)
from mesos_gpu.errors import MesosGpuError

INTERRUPTED = 130


def submit_and_stay(client: Client, request: Mapping[str, object]) -> int:
    """Submit a job and copy its output until it ends; the exit code for this process.

    Raises:
        BrokenPipeError: Nobody reads our output any more; the job has been asked to end, as a local
            command would by SIGPIPE.
        Unreachable: The scheduler stayed away for too long.
    """
    with terminated():
        return _submit_and_stay(client, request)


def _submit_and_stay(client: Client, request: Mapping[str, object]) -> int:
    follower: Follower | None = None
    try:
        with held_interrupt():
            job = client.submit(request)
            streams = [Stream(client, job["id"], name, to_stderr=name == "stderr") for name in STREAMS]
            follower = Follower(client, job, streams, launch=None)
        return _to_the_end(client, follower)
    except KeyboardInterrupt as signal:
        return _kill(client, follower, KILLED if isinstance(signal, Terminated) else INTERRUPTED)
    except BrokenPipeError:
        if follower is not None:
            with contextlib.suppress(MesosGpuError):  # nobody is there to be told
                client.patience_s = 0.0
                client.kill(follower.job["id"])
        raise
    finally:
        output.status_line.clear()


def _to_the_end(client: Client, follower: Follower) -> int:
    be_patient(client)
    watch_stdin()
    if output.status_line.live:
        output.note(f"job {follower.job['id']}")
    job = follower.follow(status_of_waiting(client) if output.status_line.live else note_of_waiting(client))
    if job["state"] != "finished":
        output.note(outcome(job))
    return exit_code_of(job)


def _kill(client: Client, follower: Follower | None, code: int) -> int:
    if follower is None:
        output.note("interrupted while submitting; see with `mesos-gpu ps` whether the job was accepted")
        return code
    job_id = follower.job["id"]
    try:
        output.note(f"killing job {job_id}; Ctrl-C again leaves at once")
        follower.job = client.kill(job_id)
        output.note(outcome(follower.follow()))
    except KeyboardInterrupt:
        output.note(f"left; see what becomes of it with `mesos-gpu show {job_id}`")
    return code
