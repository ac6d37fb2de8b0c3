"""`mesos-gpu run` in the foreground: output of the job, its end, Ctrl-C and SIGTERM."""

import contextlib
from collections.abc import Mapping, Sequence

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.interrupt import Terminated, held_interrupt, terminated
from mesos_gpu.cli.jobs import arrays
from mesos_gpu.cli.jobs.stream import STREAMS, Follower, Label, Stream, follow, task_of
from mesos_gpu.cli.stdin import watch_stdin
from mesos_gpu.cli.waiting import (
    INTERRUPTED,
    KILLED,
    UNSURE,
    be_patient,
    exit_code_of,
    outcome,
    show_waiting,
)
from mesos_gpu.errors import MesosGpuError


def submit_and_stay(client: Client, request: Mapping[str, object]) -> int:
    """Submit a job and copy its output until it ends; return the exit code.

    Raises:
        BrokenPipeError: The reader of the output has gone; the job has been asked to end, as SIGPIPE would end a local
            command.
        Unreachable: The scheduler was unreachable for too long.
    """
    with terminated():
        return _submit_and_stay(client, request)


def _submit_and_stay(client: Client, request: Mapping[str, object]) -> int:
    """Submit a job and follow it, and kill it if this process is interrupted or its output closed."""
    followers: list[Follower] = []
    try:
        with held_interrupt():
            job = client.submit(request)
            if job["array"] is None:
                followers = [_follower(client, job, rank) for rank in range(job["tasks"])]
        return _to_the_end(client, followers) if followers else arrays.stay(client, job)
    except KeyboardInterrupt as signal:
        return _kill(client, followers, KILLED if isinstance(signal, Terminated) else INTERRUPTED)
    except BrokenPipeError:
        if followers:
            with contextlib.suppress(MesosGpuError):  # the reader has gone, so errors cannot be shown
                client.patience_s = 0.0
                client.kill(followers[0].job["id"])
        raise
    finally:
        output.status_line.clear()


def stay_with(client: Client, job: Job, ranks: Sequence[int], lines: int) -> int:
    """Copy the output of tasks of a running job, from its last lines on, until it ends; return its exit code.

    Ctrl-C detaches from the job.

    Raises:
        Refused: The output cannot be read.
        Unreachable: The scheduler was unreachable for too long.
    """
    followers = [_follower(client, job, rank, launch=task_of(job, rank), lines=lines) for rank in ranks]
    try:
        return _to_the_end(client, followers)
    except KeyboardInterrupt:
        output.note(f"detached; job {job['id']} continues, to end it: mesos-gpu kill {job['id']}")
        return INTERRUPTED
    finally:
        output.status_line.clear()


def _follower(
    client: Client, job: Job, rank: int, *, launch: str | None = None, lines: int | None = None
) -> Follower:
    """Return the follower of a task: it copies bytes unchanged for a single task, else lines prefixed by the rank.

    With `launch` and `lines` it begins with the last lines of that launch.
    """
    alone = job["tasks"] == 1
    streams = [
        Stream(
            client,
            job["id"],
            name,
            to_stderr=name == "stderr",
            label=None if alone else Label(str(rank), name),
        )
        for name in STREAMS
    ]
    if launch is not None and lines is not None:
        for stream in streams:
            stream.tail(launch, lines)
    return Follower(client, job, streams, launch=launch, rank=rank)


def _to_the_end(client: Client, followers: Sequence[Follower]) -> int:
    be_patient(client)
    watch_stdin()
    if output.status_line.live:
        output.note(f"job {followers[0].job['id']}")
    job = follow(client, followers, show_waiting(client))
    if job["state"] != "finished":
        output.note(outcome(job))
    return exit_code_of(job)


def _kill(client: Client, followers: Sequence[Follower], code: int) -> int:
    if not followers:
        output.note(UNSURE)
        return code
    job_id = followers[0].job["id"]
    try:
        output.note(f"killing job {job_id}; press Ctrl-C again to leave at once")
        killed = client.kill(job_id)
        for follower in followers:
            follower.job = killed
        output.note(outcome(follow(client, followers, lambda _job: None)))
    except KeyboardInterrupt:
        output.note(f"detached; check how it ends with `mesos-gpu show {job_id}`")
    return code
