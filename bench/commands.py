"""Commands of `python -m bench`: each measures on the embedded cluster or in memory, and prints a table."""

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.access import access
from bench.api import api
from bench.exits import listener
from bench.instances import instances
from bench.isolation import isolation
from bench.metrics import metrics
from bench.placing.levels import levels
from bench.placing.placement import placement
from bench.queues import arrays, queues
from bench.scale import scale
from bench.shim import shim
from bench.starts import (
    Used,
    await_containers,
    by_name,
    containers,
    empty_start_ms,
    of_mesos_alone,
)
from bench.store import store
from bench.tenancy.bookings import bookings
from bench.tenancy.idle import idle
from bench.tenancy.reports import reports
from bench.volume import volume
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.cli.table import Lines
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.libmesos.launching import EXECUTOR
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack

IDLE_JOBS = 20
MAX_ALONE = 20  # containers of each agent that Mesos runs without an executor
MAX_ROUNDS = 10  # of a whole GPU, the first share of a card, and a further one
MAX_LAUNCH_S = 30.0
MAX_LINES = 60  # lines of logs that are printed for a job that has lost a launch


class _Bench(Lines):
    """A group of commands whose errors become text on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and print an error of it."""
        try:
            return super().invoke(ctx)
        except MesosGpuError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Bench, context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure the platform on this machine."""


@bench.command()
@click.option("--tasks", default=1000, show_default=True, type=click.IntRange(1), help="Tasks of the burst.")
@click.option("--agents", default=2, show_default=True, type=click.IntRange(1, 100), help="Mesos agents.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1, 64), help="GPUs of each agent.")
@json_option
def launch(tasks: int, agents: int, gpus: int, as_json: bool) -> None:
    """Launch one-GPU `true` tasks: latency on an idle cluster, also of shares of GPUs, then throughput of a burst."""
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        Path(top).chmod(0o755)
        output.note(f"starting {agents} agents with {gpus} GPUs each")
        with Stack(Path(top) / "stack", [NodeSpec(gpus)] * agents) as stack, Client(stack.url) as client:
            poll("the nodes report their GPUs", lambda: len(client.gpus()) == agents * gpus, 60)
            output.note(f"{IDLE_JOBS} jobs one after the other")
            idle = [_one(client) for _ in range(IDLE_JOBS)]
            rounds = min(MAX_ROUNDS, agents * gpus - 1)
            output.note(f"a whole GPU, the first share of one and a further one, {rounds} times")
            shares = _shares(client, rounds) if rounds else {}
            output.note("the executor")
            executor = _executor(client, stack)
            output.note(f"{tasks} jobs at once")
            burst = _burst(client, stack, tasks)
            output.note("containers of Mesos alone")
            alone = of_mesos_alone(stack, min(MAX_ALONE, tasks))
    result = {
        "tasks": tasks,
        "agents": agents,
        "gpus": agents * gpus,
        "idle": _latency(idle),
        "shares": shares,
        **burst,
        "mesos_alone": alone,
        **executor,
    }
    if as_json:
        output.document(result)
        return
    rows = [
        (f"{name} {key}" if isinstance(value, dict) else name, number)
        for name, value in result.items()
        for key, number in (value.items() if isinstance(value, dict) else [("", value)])
    ]
    output.table(("FIGURE", "VALUE"), rows, empty="")


bench.add_command(access)
bench.add_command(api)
bench.add_command(bookings)
bench.add_command(idle)
bench.add_command(instances)
bench.add_command(isolation)
bench.add_command(volume)
bench.add_command(shim)
bench.add_command(placement)
bench.add_command(queues)
bench.add_command(arrays)
bench.add_command(reports)
bench.add_command(levels)
bench.add_command(metrics)
bench.add_command(store)
bench.add_command(scale)


def _submit(client: Client, command: str = "true", gpus: float = 1) -> Job:
    return client.submit({"name": "bench", "command": command, "gpus": gpus, "cpus": 0.1, "mem_mib": 32})


def _one(client: Client) -> Job:
    job = _submit(client)
    changes = list(client.follow(job, deadline=time.monotonic() + 30))
    return changes[-1]


def _shares(client: Client, rounds: int) -> dict[str, float]:
    """Launch by turns on a whole GPU, on a card without shares, and on that card beside its first share.

    The first share takes more than half of its card and stays, so that the next first share gets another card.
    """
    waits_ms: dict[str, list[float]] = {"whole": [], "first": [], "further": []}
    stay: list[Job] = []
    for _ in range(rounds):
        for kind, gpus, command in (
            ("whole", 1, "true"),
            ("first", 0.6, "sleep 600"),
            ("further", 0.25, "true"),
        ):
            job = _running(client, _submit(client, command, gpus))
            waits_ms[kind].append(((job["started_at"] or 0.0) - job["submitted_at"]) * 1000)
            if kind == "first":
                stay.append(job)
    for job in stay:
        client.kill(job["id"])
    poll("the shares end", lambda: not client.jobs(states=["active"]))
    p50_ms = {kind: statistics.median(waits) for kind, waits in waits_ms.items()}
    return {
        **{f"{kind}_p50_ms": round(value, 1) for kind, value in p50_ms.items()},
        **{f"{kind}_by_whole": round(p50_ms[kind] / p50_ms["whole"], 2) for kind in ("first", "further")},
    }


def _running(client: Client, job: Job) -> Job:
    """Wait until a job has started, and a job of `true` has ended, too; return it.

    Raises:
        MesosGpuError: The job has not started in time.
    """
    deadline = time.monotonic() + MAX_LAUNCH_S
    for seen in client.follow(job, deadline=deadline):
        job = seen
        if job["command"] != "true" and job["started_at"]:
            break
    if not job["started_at"]:
        raise MesosGpuError(f"job {job['id']} has not started in {MAX_LAUNCH_S:g} s", remedy="see its reason")
    return job


def _latency(jobs: Sequence[Job]) -> dict[str, float]:
    """Return percentiles of the seconds from submission to the RUNNING update, by the scheduler's clock."""
    waits = sorted(job["started_at"] - job["submitted_at"] for job in jobs if job["started_at"])
    return {
        "submit_to_running_p50_s": round(statistics.median(waits), 3),
        "submit_to_running_p99_s": round(waits[min(len(waits) - 1, int(len(waits) * 0.99))], 3),
    }


def _burst(client: Client, stack: Stack, tasks: int) -> dict[str, Any]:
    resident = containers(stack)
    exits, why = listener()
    if exits is None:
        output.note(f"no figures of helpers, executors and tasks apart: {why}")
    empty_ms, before = empty_start_ms(), Used.of(stack)
    with exits or contextlib.nullcontext():
        jobs, peak_rss = _run_all(client, stack, tasks)
        await_containers(stack, resident)
        after = Used.of(stack)
    empty_ms = (empty_ms + empty_start_ms()) / 2
    used = after.since(before, tasks, empty_ms)
    parts = exits.parts([agent.pid for agent in stack.cluster.agents]) if exits is not None else None
    took_s = max(job["ended_at"] or 0.0 for job in jobs) - min(job["submitted_at"] for job in jobs)
    return {
        "burst": _latency(jobs),
        "burst_s": round(took_s, 1),
        "tasks_per_s": round(tasks / took_s, 1),
        "launches_lost_to_infrastructure": sum(job["infrastructure_failures"] for job in jobs),
        "scheduler_rss_mib": round(peak_rss / 2**20, 1),
        **used,
        **by_name(used["cpu_ms_per_task"]),
        **(parts.each(tasks, empty_ms) if parts is not None else {}),
    }


def _run_all(client: Client, stack: Stack, tasks: int) -> tuple[list[Job], int]:
    """Run jobs to their end; return them and the peak memory of the scheduler in bytes.

    Raises:
        MesosGpuError: A job does not end or does not finish.
    """
    import psutil

    scheduler = psutil.Process(stack.scheduler.pid)
    ids = {_submit(client)["id"] for _ in range(tasks)}
    peak_rss = 0
    deadline = time.monotonic() + max(300.0, tasks)
    while True:
        peak_rss = max(peak_rss, scheduler.memory_info().rss)
        if not client.jobs(states=["active"], limit=1):
            break
        if time.monotonic() > deadline:
            raise MesosGpuError("the burst has not ended", remedy=stack.scheduler.tail())
        time.sleep(0.5)
    jobs = [job for job in client.jobs(limit=tasks + 100) if job["id"] in ids]
    if not all(ended(job) and job["state"] == "finished" for job in jobs) or len(jobs) != tasks:
        raise MesosGpuError("not every task of the burst finished", remedy=stack.scheduler.tail())
    _tell_losses(stack, jobs)
    return jobs, peak_rss


def _tell_losses(stack: Stack, jobs: Sequence[Job]) -> None:
    """Print jobs that have lost a launch with their lines in logs, which are removed with the cluster."""
    for job in jobs:
        if job["infrastructure_failures"]:
            output.note(f"{job['id']} has lost a launch")
            for line in _lines_of(stack, job["id"]):
                output.note(f"  {line}")


def _lines_of(stack: Stack, job_id: str) -> list[str]:
    """Return the last lines about a job in the logs of the scheduler, the masters and the agents."""
    logs = [stack.scheduler.log, *(each.log for each in (*stack.cluster.masters, *stack.cluster.agents))]
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if job_id in line]
    return lines[-MAX_LINES:]


def _executor(client: Client, stack: Stack) -> dict[str, float]:
    """Return CPU time and memory of executors that have just started a `sleep`."""
    import psutil

    jobs = [_submit(client, "sleep 30") for _ in range(4)]
    poll("four sleeps run", lambda: all(client.job(j["id"])["state"] == "running" for j in jobs))
    executors = [p for p in psutil.process_iter(["cmdline"]) if _is_executor(p.info["cmdline"] or [])]
    cpu_ms = [sum(process.cpu_times()[:2]) * 1000 for process in executors]
    rss_mib = [process.memory_info().rss / 2**20 for process in executors]
    for job in jobs:
        client.kill(job["id"])
    poll("the sleeps end", lambda: not client.jobs(states=["active"]))
    return {
        "executor_start_cpu_ms": round(statistics.median(cpu_ms), 1),
        "executor_rss_mib": round(statistics.median(rss_mib), 1),
    }


def _is_executor(cmdline: Sequence[str]) -> bool:
    return any(os.path.basename(word) == EXECUTOR for word in cmdline)
