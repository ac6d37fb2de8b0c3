"""`mesos-gpu resize`: other shares for a running job."""

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

ANSWER_S: Final = 10.0  # that the host of a job may take for an answer
_TIMED_OUT: Final = 124
_AGAIN_S: Final = 1.0  # between tries while it uses more than it is to have
_PENDING: Final = ("asked", "withdrawing")
_IN_USE: Final = "in-use"


@click.command()
@click.argument("job_id", metavar="ID", type=ACTIVE_JOB)
@click.option(
    "--gpus",
    type=GPUS,
    metavar="N",
    help="Part of one GPU that it is to have, as 0.5: of memory and of compute.",
)
@click.option("--gpu-memory", type=MEMORY, help="Memory of each GPU that it is to have.")
@click.option(
    "--gpu-compute",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Percentage of each GPU's compute; 100: all.",
)
@click.option("--gpu-memory-max", type=MEMORY, help="Most memory that it may use while others leave it.")
@click.option(
    "--wait", is_flag=True, help="Wait until it uses no more than it is to have, and its host has done it."
)
@click.option(
    "--timeout", type=DURATION, help="Give up waiting after that time, as 90s or 2h, with exit code 124."
)
@click.option(
    "--withdraw", is_flag=True, help="Let it keep what it had, while its host has not answered a resize."
)
@click.option("--restart", is_flag=True, help="Start it again where it cannot be changed while it runs.")
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
    """Give a running job more or less of the GPUs that it shares.

    It grows within its GPUs, while others leave room. It shrinks to what it uses and no further: it is refused
    then, with the figure, or waits for it. What an MPS server or a MIG instance fixes cannot change while the job
    runs; with --restart it starts again, and no attempt is used up.

    A host that does not answer is asked again and again; until it has answered, the GPUs count the more of both sizes.
    With --withdraw the job is to have what it had.

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
        raise click.UsageError("--withdraw goes with no amount and not with --restart: it has what it had")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    if not patch and not withdraw:
        raise click.UsageError("say what it is to have: --gpus, --gpu-memory or --gpu-compute; or --withdraw")
    deadline = None if timeout is None else time.monotonic() + timeout
    client = app.client()
    job = (
        _withdrawn(client, job_id, _patience_s(deadline))
        if withdraw
        else _asked(client, job_id, patch, restart=restart, wait=wait, deadline=deadline)
    )
    if job is None:
        output.note(f"{job_id} still uses more than it is to have")
        click.get_current_context().exit(_TIMED_OUT)
    if wait:
        job = _answered(client, job, deadline)
    output.document(job) if as_json else output.line(_said(job))
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
    """Ask for other shares of a running job, and return the job as it is when its host has answered.

    Args:
        client: Client of the scheduler.
        job_id: Job whose shares are to change.
        patch: New amounts by the names of their fields.
        restart: Whether the job may start again where its shares cannot change while it runs.
        answer_s: Seconds to wait for the host.

    Raises:
        Unreachable, BadAnswer, Refused: As for each call of the client.
    """
    query = {"timeout_s": answer_s, **({"restart": "true"} if restart else {})}
    return client.call("PATCH", path_of("jobs", job_id), Job, query, body=patch, wait_s=answer_s)


def _withdrawn(client: Client, job_id: str, answer_s: float) -> Job:
    """Let a job keep the shares that it had, and return the job as it is when its host has answered."""
    query, path = {"timeout_s": answer_s}, path_of("jobs", job_id, "resize")
    return client.call("DELETE", path, Job, query, wait_s=answer_s, may_repeat=True)


def _patience_s(deadline: float | None) -> float:
    """How long the scheduler is to wait for an answer of the job's host."""
    return ANSWER_S if deadline is None else min(max(deadline - time.monotonic(), 0.0), ANSWER_S)


def _asked(
    client: Client, job_id: str, patch: dict[str, float], *, restart: bool, wait: bool, deadline: float | None
) -> Job | None:
    """The job once its host has taken it up; None: it uses too much until the deadline."""
    told = False
    while True:
        try:
            return ask_resize(client, job_id, patch, restart=restart, answer_s=_patience_s(deadline))
        except Refused as refusal:
            if not wait or refusal.code != _IN_USE:
                raise
            if not told:
                output.note(f"{refusal.what}; waiting")
            told = True
        if deadline is not None and time.monotonic() >= deadline:
            return None
        time.sleep(_AGAIN_S)


def _answered(client: Client, job: Job, deadline: float | None) -> Job:
    """The job once its host has answered, or at the deadline."""
    newest = job
    while _waits(newest) and (newer := next(client.follow(newest, deadline=deadline), None)):
        newest = newer
    return newest


def _waits(job: Job) -> bool:
    return job["resize"] is not None and job["resize"]["state"] in _PENDING and not ended(job)


def _said(job: Job) -> str:
    resize, share = job["resize"], job["share"]
    if resize is None or (share is None and resize["state"] not in _PENDING):
        return f"{job['id']} {job['state']}: {job['message']}"
    if resize["state"] in _PENDING:
        asked = f"{resize['compute_pct']:g}% {resize['memory_mib']} MiB"
        return f"{job['id']} shall have {asked} of each GPU; its host has not answered yet"
    if not share:
        return f"{job['id']} {job['state']}"
    return f"{job['id']} has {amount(share)} of each GPU{burst(share, job['gpu_memory_max_mib'])}"
