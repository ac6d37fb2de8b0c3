"""`mesos-gpu resize`: change the GPU shares of a running job."""

import time
from collections.abc import Mapping
from typing import Final

import click

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.client import Client, Refused, ended, path_of
from mesos_gpu.cli.share import amount, burst
from mesos_gpu.cli.types import ACTIVE_JOB, DURATION, GPUS, MEMORY

ANSWER_S: Final = 10.0  # maximum wait for the answer of the job's host
_TIMED_OUT: Final = 124
_AGAIN_S: Final = 1.0  # interval of retries while the job uses more than its new share
_PENDING: Final = ("asked", "withdrawing")
_IN_USE: Final = "in-use"


@click.command()
@click.argument("job_id", metavar="ID", type=ACTIVE_JOB)
@click.option(
    "--gpus",
    type=GPUS,
    metavar="N",
    help="New part of one GPU's memory and compute, such as 0.5.",
)
@click.option("--gpu-memory", type=MEMORY, help="New memory share of each GPU.")
@click.option(
    "--gpu-compute",
    type=click.IntRange(1, 100),
    metavar="N",
    help="New percentage of each GPU's compute; 100: all.",
)
@click.option(
    "--gpu-memory-max",
    type=MEMORY,
    help="New maximum memory that the job may use while other shares leave it free.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job uses no more than its new share and its host has applied it.",
)
@click.option(
    "--timeout", type=DURATION, help="Give up waiting after this time, such as 90s or 2h, with exit code 124."
)
@click.option("--withdraw", is_flag=True, help="Withdraw a resize that the host has not answered yet.")
@click.option("--restart", is_flag=True, help="Restart the job if its share cannot be changed while it runs.")
@json_option
@api_command
def resize(
    app: App,
    job_id: str,
    gpus: float | None,
    gpu_memory: int | None,
    gpu_compute: int | None,
    gpu_memory_max: int | None,
    wait: bool,
    timeout: float | None,
    withdraw: bool,
    restart: bool,
    as_json: bool,
) -> None:
    """Change the GPU share of a running job.

    A share grows within its GPUs as far as other shares leave room. It shrinks to the current use and no further:
    otherwise it is refused with the amount, or with --wait retried. Shares fixed by an MPS server or a MIG instance
    cannot change while the job runs; with --restart the job restarts, which uses up no attempt.

    A host that does not answer is asked again; until it answers, the GPUs count the larger of both sizes. With
    --withdraw
    the job keeps its former share.

    \b
      mesos-gpu resize serve --gpu-memory 20GiB --wait
      mesos-gpu resize serve --gpus 0.5
    """
    amounts: dict[str, float | None] = {
        "gpus": gpus, "gpu_memory_mib": gpu_memory, "gpu_compute_pct": gpu_compute,
        "gpu_memory_max_mib": gpu_memory_max,
    }  # fmt: skip
    patch = {name: value for name, value in amounts.items() if value is not None}
    if withdraw and (patch or restart):
        raise click.UsageError("--withdraw excludes amounts and --restart: the job keeps its former share")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if not patch and not withdraw:
        raise click.UsageError("give the new share: --gpus, --gpu-memory or --gpu-compute; or --withdraw")
    deadline = None if timeout is None else time.monotonic() + timeout
    client = app.client()
    job = (
        _withdrawn(client, job_id, _patience_s(deadline))
        if withdraw
        else _asked(client, job_id, patch, restart=restart, wait=wait, deadline=deadline)
    )
    if job is None:
        output.note(
            f"{job_id} still uses more than its new share; free GPU memory and retry, or use --restart"
        )
        click.get_current_context().exit(_TIMED_OUT)
    if wait:
        job = _answered(client, job, deadline)
    output.document(job) if as_json else output.line(_status_line(job))
    if wait and _waits(job):
        click.get_current_context().exit(_TIMED_OUT)


def ask_resize(
    client: Client,
    job_id: str,
    patch: Mapping[str, float | None],
    *,
    restart: bool = False,
    answer_s: float = ANSWER_S,
) -> Job:
    """Request other shares for a running job, and return the job after its host's answer or the timeout.

    Args:
        client: Client of the scheduler.
        job_id: Job whose shares are to change.
        patch: New amounts by the names of their fields.
        restart: Whether the job may start again where its shares cannot change while it runs.
        answer_s: Seconds to wait for the host.

    Raises:
        Unreachable, BadAnswer, Refused: See `Client`.
    """
    query = {"timeout_s": answer_s, **({"restart": "true"} if restart else {})}
    return client.call("PATCH", path_of("jobs", job_id), Job, query, body=patch, wait_s=answer_s)


def _withdrawn(client: Client, job_id: str, answer_s: float) -> Job:
    """Withdraw a resize, and return the job after its host's answer or the timeout."""
    query, path = {"timeout_s": answer_s}, path_of("jobs", job_id, "resize")
    return client.call("DELETE", path, Job, query, wait_s=answer_s, may_repeat=True)


def _patience_s(deadline: float | None) -> float:
    """Return how long the scheduler should wait for the host's answer, in seconds."""
    return ANSWER_S if deadline is None else min(max(deadline - time.monotonic(), 0.0), ANSWER_S)


def _asked(
    client: Client, job_id: str, patch: dict[str, float], *, restart: bool, wait: bool, deadline: float | None
) -> Job | None:
    """Return the job after the request was accepted; None if it used too much until the deadline."""
    was_noted = False
    while True:
        try:
            return ask_resize(client, job_id, patch, restart=restart, answer_s=_patience_s(deadline))
        except Refused as refusal:
            if not wait or refusal.code != _IN_USE:
                raise
            if not was_noted:
                output.note(f"{refusal.what}; waiting")
            was_noted = True
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(_AGAIN_S)


def _answered(client: Client, job: Job, deadline: float | None) -> Job:
    """Wait for the host's answer until the deadline; return the job."""
    newest = job
    while _waits(newest) and (newer := next(client.follow(newest, deadline=deadline), None)):
        newest = newer
    return newest


def _waits(job: Job) -> bool:
    return job["resize"] is not None and job["resize"]["state"] in _PENDING and not ended(job)


def _status_line(job: Job) -> str:
    resize, share = job["resize"], job["share"]
    if resize is None or (share is None and resize["state"] not in _PENDING):
        return f"{job['id']} {job['state']}: {job['message']}"
    if resize["state"] in _PENDING:
        asked = f"{resize['compute_pct']:g}% {resize['memory_mib']} MiB"
        return f"{job['id']} is to get {asked} of each GPU; its host has not answered yet"
    if not share:
        return f"{job['id']} {job['state']}"
    return f"{job['id']} has {amount(share)} of each GPU{burst(share, job['gpu_memory_max_mib'])}"
