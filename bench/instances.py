"""`python -m bench instances`: start times of jobs and of instances of one app on the embedded cluster."""

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import requests

from bench.starts import Used, await_containers, containers
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.client import Client
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack

if TYPE_CHECKING:
    import psutil

APP: Final = "/bench"
_LOOK_S: Final = 1.0  # seconds between requests for the app's counts
_EACH_S: Final = 3.0  # time limit per task, in seconds, on a busy machine
_MIN_S: Final = 180.0
_SAMPLES: Final = 20  # instances whose memory is measured
Figures = dict[str, Any]


@click.command()
@click.option("--tasks", default=1000, show_default=True, type=click.IntRange(1), help="Jobs, and instances.")
@click.option("--agents", default=3, show_default=True, type=click.IntRange(1, 100), help="Mesos agents.")
@click.option("--gpus", default=4, show_default=True, type=click.IntRange(0, 64), help="GPUs of each agent.")
@click.option(
    "--stop-s",
    default=0,
    show_default=True,
    type=click.IntRange(0, 600),
    help="Stop an agent for so many seconds, by SIGSTOP, when a third of the instances run.",
)
@json_option
def instances(tasks: int, agents: int, gpus: int, stop_s: int, as_json: bool) -> None:
    """Run jobs of `true` without GPUs, then as many instances of one app that sleeps, and delete the app.

    A thousand instances need 12 GB of memory.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        Path(top).chmod(0o755)
        output.note(f"starting {agents} agents with {gpus} GPUs each")
        with Stack(Path(top) / "stack", [NodeSpec(gpus)] * agents) as stack, Client(stack.url) as client:
            poll("the nodes report their GPUs", lambda: len(client.gpus()) == agents * gpus, 60)
            figures: Figures = {"tasks": tasks, "agents": agents, "cores": os.cpu_count() or 1}
            figures |= measure(client, stack, tasks, stop_s)
    if as_json:
        output.document(figures)
    else:
        output.table(("FIGURE", "VALUE"), list(figures.items()), empty="")


def measure(client: Client, stack: Stack, tasks: int, stop_s: int = 0) -> Figures:
    """Measure jobs of `true`, instances of an app and the deletion of the app; return the figures by name.

    Args:
        client: Client of the cluster's scheduler.
        stack: The embedded cluster.
        tasks: Number of jobs, and of instances.
        stop_s: Seconds for which the first agent is stopped while instances start; 0 not to stop it.
    """
    output.note(f"{tasks} jobs of `true`")
    true = _jobs_of_true(client, stack, tasks)
    output.note(f"{tasks} instances of an app")
    app = start_instances(stack, tasks, stop_s)
    output.note("its deletion")
    return {**true, **app, "app_by_true": round(app["app_s"] / true["true_s"], 2), **delete_instances(stack)}


def _jobs_of_true(client: Client, stack: Stack, tasks: int) -> Figures:
    resident, before, began = containers(stack), Used.of(stack), time.monotonic()
    for _ in range(tasks):
        client.submit({"name": "bench", "command": "true", "gpus": 0, "cpus": 0.01, "mem_mib": 8})
    _wait(stack, "the jobs end", tasks, lambda: not client.jobs(states=["active"], limit=1))
    took_s = time.monotonic() - began
    await_containers(stack, resident)
    ms = sum(now - then for now, then in zip(Used.of(stack), before, strict=True)) * 1000 / tasks
    return {"true_s": round(took_s, 1), **_of_cores("true", ms, tasks)}


def start_instances(stack: Stack, tasks: int, stop_s: int = 0) -> Figures:
    """Start instances of an app and wait until all run; return times, CPU, memory, launches and lost launches.

    Args:
        stack: The embedded cluster.
        tasks: Number of instances.
        stop_s: Seconds for which the first agent is stopped meanwhile; 0 not to stop it.
    """
    resident = {child.pid for child in _children(stack)}
    before, began, began_at = Used.of(stack), time.monotonic(), time.time()
    definition = {
        "id": APP, "cmd": "exec sleep 3600", "cpus": 0.01, "mem": 8, "instances": tasks, "portDefinitions": [],
    }  # fmt: skip
    _ask(stack, "POST", "/v2/apps", json=definition)
    with _stopped(stack, tasks, stop_s) as done:
        _wait(stack, "all instances run", tasks, lambda: done.is_set() and _running(stack) >= tasks)
        took_s = time.monotonic() - began
    used_s = sum(now - then for now, then in zip(Used.of(stack), before, strict=True))
    trees = [_tree(child) for child in _children(stack) if child.pid not in resident]
    used_s += sum(_cpu_s(each) for tree in trees for each in tree)
    mib = statistics.fmean(sum(map(_mib, tree)) for tree in trees[:_SAMPLES])
    every = Client(stack.url).jobs(limit=20 * tasks)
    jobs = [job for job in every if job["app"] == APP and job["submitted_at"] >= began_at]
    return {
        "app_s": round(took_s, 1),
        **_of_cores("app", used_s * 1000 / tasks, tasks),
        "app_mib_per_instance": round(mib, 1),
        "launched": sum(job["launches"] for job in jobs),
        "lost": sum(job["infrastructure_failures"] for job in jobs)
        + sum(j["state"] == "killed" for j in jobs),
    }


def _children(stack: Stack) -> list["psutil.Process"]:
    """Return the processes that the agents have started."""
    import psutil

    return [child for agent in stack.cluster.agents for child in psutil.Process(agent.pid).children()]


def _tree(process: "psutil.Process") -> list["psutil.Process"]:
    """Return a process and all its descendants; an empty list if it has ended."""
    import psutil

    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _cpu_s(process: "psutil.Process") -> float:
    """Return the CPU time of a process and its reaped children, in seconds."""
    import psutil

    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0  # counted as a reaped child of its parent
    return float(times.user + times.system + times.children_user + times.children_system)


def _mib(process: "psutil.Process") -> float:
    """Return the memory that a process shares with no other process (USS), in MiB."""
    import psutil

    try:
        return float(process.memory_full_info().uss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def _of_cores(name: str, ms: float, tasks: int) -> Figures:
    """Return the CPU time per launch, and the shortest times for all launches with these cores and with one more.

    Args:
        name: Prefix of the figures' names.
        ms: CPU time per launch, in milliseconds.
        tasks: Number of launches.
    """
    cores = os.cpu_count() or 1
    return {
        f"{name}_cpu_ms_per_launch": round(ms, 1),
        f"{name}_least_s": round(ms * tasks / 1000 / cores, 1),
        f"{name}_least_s_with_one_core_more": round(ms * tasks / 1000 / (cores + 1), 1),
    }


@contextmanager
def _stopped(stack: Stack, tasks: int, stop_s: int) -> Iterator[threading.Event]:
    """Stop the first agent for some seconds when a third of the instances run; the event is set afterwards."""
    done, pid = threading.Event(), stack.cluster.agents[0].pid
    if not stop_s:
        done.set()
        yield done
        return

    def stop() -> None:
        poll("a third of the instances run", lambda: _running(stack) >= tasks / 3, _limit_s(tasks))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(stop_s)
        os.kill(pid, signal.SIGCONT)
        done.set()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        os.kill(pid, signal.SIGCONT)


def delete_instances(stack: Stack) -> Figures:
    """Delete the app and wait until its last instance has ended; return the time in seconds and the load averages."""
    began, load = time.monotonic(), os.getloadavg()[0]
    _ask(stack, "DELETE", f"/v2/apps/{APP}?force=true")
    peak = load
    while Client(stack.url).jobs(states=["active"], limit=1):
        peak = max(peak, os.getloadavg()[0])
        time.sleep(_LOOK_S)
        if time.monotonic() - began > _MIN_S:
            raise MesosGpuError("instances of a deleted app still run", remedy=stack.scheduler.tail())
    took_s = time.monotonic() - began
    return {
        "deletion_s": round(took_s, 1),
        "load_before_deletion": round(load, 1),
        "load_of_deletion": round(peak, 1),
    }


def _running(stack: Stack) -> int:
    return int(_ask(stack, "GET", "/v2/apps?embed=apps.counts")["apps"][0]["tasksRunning"])


def _limit_s(tasks: int) -> float:
    return max(_MIN_S, _EACH_S * tasks)


def _wait(stack: Stack, what: str, tasks: int, done: Any) -> None:
    deadline = time.monotonic() + _limit_s(tasks)
    while not done():
        if time.monotonic() > deadline:
            raise MesosGpuError(
                f"waited {_limit_s(tasks):.0f} s until {what}, in vain", remedy=stack.scheduler.tail()
            )
        time.sleep(_LOOK_S)


def _ask(stack: Stack, method: str, path: str, **more: Any) -> Any:
    answer = requests.request(method, f"{stack.url}{path}", timeout=60, **more)
    answer.raise_for_status()
    return answer.json()
