"""`python -m bench scale`: a scheduler with thousands of simulated agents."""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bench import reads
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.local.processes import poll
from mesos_gpu.model.jobs.job import JobSpec, Placement
from mesos_gpu.policy.cluster.registry import OFFERED
from mesos_gpu.scheduler.options.parse import NumberRange

if TYPE_CHECKING:
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.ready_cluster import ReadyCluster

T = TypeVar("T")
V = TypeVar("V")
BATCH: Final = 200  # jobs that are submitted together
REPORT_S: Final = 10.0  # seconds between two reports of a monitor
_STEP_S: Final = 0.05  # seconds between batches of reports
_CPUS: Final = 64.0  # of each agent
_MEM_MIB: Final = 512 * 1024.0
_MAX_S: Final = 3600.0


@click.command()
@click.option(
    "--agents", default=1_000, show_default=True, type=click.IntRange(1, 60_000), help="Agents of Mesos."
)
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1, 64), help="GPUs of each agent.")
@click.option(
    "--jobs", default=2_000, show_default=True, type=click.IntRange(1), help="Jobs of one GPU each."
)
@click.option(
    "--running",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Jobs that run before the measurement.",
)
@click.option(
    "--policy",
    default=Placement.BUNDLE.value,
    show_default=True,
    type=click.Choice(OFFERED),
    help="Policy of placement.",
)
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    type=NumberRange(0.1),
    help="Duration of each measurement of an idle scheduler.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of the state on disk; default: it is in memory.",
)
@json_option
def scale(
    agents: int,
    gpus: int,
    jobs: int,
    running: int,
    policy: str,
    seconds: float,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Submit jobs in batches of 200 to a scheduler of many agents, whose launches run at once and do not end.

    The rest of an offer comes back, and every agent's monitor reports every 10 s. Figures with cpu in their name count
    processor time of the scheduler's thread; those with engine_ count its decisions alone. Then no more jobs are
    submitted: idle_core_pct is the processor time of the scheduler's thread for unchanged reports, and
    idle_uses_core_pct for reports with another use of each card, in percent of a core. rss_mib is the memory of this
    process, the simulated Mesos included. Finally lists, the dashboard's feeds and the metrics are read over HTTP, five
    times each: ms until the last byte, engine_ms on the scheduler's thread, and kib.
    """
    if jobs + running > agents * gpus:
        raise click.UsageError(
            f"--jobs and --running are {jobs + running:,}, and there are {agents * gpus:,} GPUs: give more agents"
        )
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-", dir=directory) as top:
        path = None if directory is None else Path(top)
        figures = measured(agents, gpus, jobs, policy, seconds, path, running)
    if as_json:
        output.document(figures)
        return
    read = figures.pop("reads")
    output.table(("FIGURE", "VALUE"), list(figures.items()), empty="")
    rows = [(path, each["ms"], each["engine_ms"], each["kib"]) for path, each in read.items()]
    output.table(("READ", "MS", "ENGINE_MS", "KIB"), rows, empty="")


def measured(
    agents: int, gpus: int, jobs: int, policy: str, seconds: float, directory: Path | None, running: int = 0
) -> dict[str, Any]:
    """Run a scheduler and return the figures by name.

    Args:
        agents: Number of agents, each with a monitor.
        gpus: GPUs of each agent.
        jobs: Number of jobs of one GPU; there must be GPUs for all.
        policy: Name of the policy of placement.
        seconds: Duration of each measurement of an idle scheduler.
        directory: Directory of the state, or None for a state in memory.
        running: Number of jobs that run before the measured ones.

    Raises:
        Unavailable: The scheduler has not launched all jobs within an hour.
    """
    import psutil

    from mesos_gpu.scheduler import look_briefly

    daemon, cluster, readers = _made(agents, gpus, policy, directory)
    look_briefly()
    daemon.start()
    with _Reports(cluster, agents) as reports:
        try:
            output.note(f"{agents:,} agents start their monitors")
            began = time.perf_counter()
            poll("all agents have reported", lambda: _reported(daemon) == agents, _MAX_S, 0.25)
            figures: dict[str, Any] = {
                "agents": agents,
                "gpus": agents * gpus,
                "running": running,
                "jobs": jobs,
            }
            figures |= {"policy": policy, "start_s": round(time.perf_counter() - began, 1)}
            if running:
                output.note(f"{running:,} jobs, which run meanwhile")
                _launched(daemon, cluster, running)
            output.note(f"{jobs:,} jobs")
            figures |= _launched(daemon, cluster, jobs)
            poll("all run", lambda: _running(daemon) == jobs + running, _MAX_S, 0.25)
            for name, uses in (("idle_core_pct", False), ("idle_uses_core_pct", True)):
                output.note(f"{seconds:g} s of reports{' of another use of each card' if uses else ''}")
                reports.uses = uses
                figures[name] = _idle_pct(daemon, seconds)
            figures["rss_mib"] = round(psutil.Process().memory_info().rss / 2**20, 1)
            reports.uses = False
            output.note("lists, the dashboard's feeds and metrics")
            asked = reads.paths(jobs + running, agents, agents * gpus)
            return figures | {"reads": reads.measured(daemon, asked, lambda: readers.taken_s)}
        finally:
            daemon.stop()


def _made(
    agents: int, gpus: int, policy: str, directory: Path | None
) -> "tuple[Daemon, ReadyCluster, _Readers]":
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.adapters.sqlite_store import SqliteStore
    from mesos_gpu.engine.reading.view import View
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.memory_store import MemoryStore
    from tests.doubles.ready_cluster import ReadyCluster

    readers = _Readers()

    class TimedDaemon(Daemon):
        def read(self, fn: Callable[[View], T]) -> Future[T]:
            return super().read(lambda view: readers.timed(fn, view))

    clock = SystemClock()
    store = MemoryStore() if directory is None else SqliteStore(directory / "state.sqlite")

    def put(event: Any) -> None:
        daemon.put(event)

    cluster = ReadyCluster(agents, put, clock.now, gpus, cpus=_CPUS, mem_mib=_MEM_MIB)
    settings = Settings.of("executor", "monitor", placement=Placement(policy), report_interval_s=REPORT_S)
    daemon = TimedDaemon(store, store.load(), cluster, clock, settings)
    return daemon, cluster, readers


class _Readers:
    """Processor time of readers on the scheduler's thread.

    Attributes:
        taken_s: Processor time so far, in seconds.
    """

    def __init__(self) -> None:
        self.taken_s = 0.0

    def timed(self, fn: Callable[[V], T], view: V) -> T:
        """Run a function on a view, and add its processor time."""
        began = time.thread_time()
        try:
            return fn(view)
        finally:
            self.taken_s += time.thread_time() - began


class _Reports:
    """A thread that lets every monitor report every ten seconds, a few of them at a time."""

    def __init__(self, cluster: "ReadyCluster", agents: int) -> None:
        self.uses = False  # whether reports have the use of cards
        self._cluster, self._agents = cluster, agents
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def __enter__(self) -> "_Reports":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        began, done = time.monotonic(), 0
        while not self._ended.wait(_STEP_S):
            due = int((time.monotonic() - began) / REPORT_S * self._agents)
            for number in range(done, min(due, done + self._agents)):
                self._cluster.report(number % self._agents, uses=self.uses)
            done = due


def _launched(daemon: "Daemon", cluster: "ReadyCluster", jobs: int) -> dict[str, float]:
    """Submit jobs in batches, each after the launch of the previous one; return rates and percentiles."""
    from mesos_gpu.api.asking import new_job

    spec = JobSpec("bench", command="true", gpus=1, cpus=1, mem_mib=1024)
    took_s, cpu_s = list[float](), [_cpu_s(daemon)]
    before, engine_s = cluster.launched, _engine_s(daemon)
    for done in range(0, jobs, BATCH):
        due = before + min(done + BATCH, jobs)
        began = time.perf_counter()
        wait([daemon.request(new_job(spec)) for _ in range(due - before - done)])
        poll("a batch is launched", partial(_is_launched, cluster, due), _MAX_S, 0.001)
        took_s.append(time.perf_counter() - began)
        cpu_s.append(_cpu_s(daemon))
    return {
        "launches_per_s": round(jobs / sum(took_s), 1),
        "launches_per_cpu_s": round(jobs / (cpu_s[-1] - cpu_s[0]), 1),
        "engine_launches_per_cpu_s": round(jobs / (_engine_s(daemon) - engine_s), 1),
        "batch_p50_s": _percentile(took_s, 0.5),
        "batch_p99_s": _percentile(took_s, 0.99),
        "batch_cpu_p99_s": _percentile([after - before for before, after in pairwise(cpu_s)], 0.99),
    }


def _percentile(values: Sequence[float], part: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * part))], 4)


def _is_launched(cluster: "ReadyCluster", due: int) -> bool:
    return cluster.launched >= due


def _idle_pct(daemon: "Daemon", seconds: float) -> float:
    """Return the processor time of the scheduler's thread in percent, without the first reports of a kind."""
    time.sleep(min(REPORT_S, seconds))
    began, cpu_s = time.perf_counter(), _cpu_s(daemon)
    time.sleep(seconds)
    return round((_cpu_s(daemon) - cpu_s) / (time.perf_counter() - began) * 100, 2)


def _cpu_s(daemon: "Daemon") -> float:
    """Return the processor time of the scheduler's thread, in seconds."""
    return daemon.read(lambda _: time.thread_time()).result()


def _engine_s(daemon: "Daemon") -> float:
    """Return the processor time of the engine's steps so far, in seconds."""
    return daemon.read(lambda _: daemon.meter.stepped_s).result()


def _reported(daemon: "Daemon") -> int:
    return daemon.read(lambda view: sum(n.inventory is not None for n in view.nodes.values())).result()


def _running(daemon: "Daemon") -> int:
    return daemon.read(lambda view: sum(job.state.value == "running" for job in view.jobs.values())).result()
