"""`python -m bench store`: changes of tasks' states that are saved per second, one by one and in groups."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.local.processes import poll
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.saves import KeepEvent, Save, Saved, SaveJob, SaveTask
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.scheduler.options.parse import NumberRange

if TYPE_CHECKING:
    from mesos_gpu.adapters.sqlite_store import SqliteStore

GROUPS: Final = (1, 10, 100, 500)  # transitions per transaction; the scheduler groups up to 500
_ROUNDS: Final = 3
_TASKS: Final = 5_000  # tasks that change their states by turns
_AGENTS: Final = 50
_PAGE: Final = bytes(4096)
_PAGES: Final = 1_000  # pages of the file, as of a rewritten log
_STATES: Final = (
    (JobState.RUNNING, TaskState.STARTING, EventKind.STARTED),
    (JobState.RUNNING, TaskState.RUNNING, EventKind.STARTED),
    (JobState.FINISHED, TaskState.FINISHED, EventKind.FINISHED),
)


@click.command()
@click.option(
    "--seconds", default=1.0, show_default=True, type=NumberRange(0.01), help="Duration of each measurement."
)
@click.option(
    "--jobs", default=2_000, show_default=True, type=click.IntRange(1), help="Jobs of the scheduler."
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory on the measured disk; default: that of temporary files.",
)
@json_option
def store(seconds: float, jobs: int, directory: Path | None, as_json: bool) -> None:
    """Save changes of tasks' states, with their jobs and events, in transactions of 1 to 500 changes.

    Then a scheduler takes, launches and kills jobs. For comparison single pages are written and synced. Measurements
    take turns, and their medians are shown.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-", dir=directory) as top:
        figures: dict[str, float] = _saved(Path(top), seconds)
        output.note(f"a scheduler takes, launches and kills {jobs:,} jobs")
        figures |= _scheduled(Path(top) / "scheduler" / "state.sqlite", jobs)
    figures["group_by_one"] = round(
        figures[f"groups_of_{GROUPS[-1]}_per_s"] / figures["groups_of_1_per_s"], 1
    )
    if as_json:
        output.document(figures)
    else:
        output.table(("FIGURE", "VALUE"), list(figures.items()), empty="")


def _saved(top: Path, seconds: float) -> dict[str, float]:
    """Return transitions per second and their processor time by size of group, and syncs per second of the disk."""
    from mesos_gpu.adapters.sqlite_store import SqliteStore

    rates: dict[str, list[float]] = {}
    opened = SqliteStore(top / "store" / "state.sqlite")
    try:
        every = transitions()
        for number in range(1, _ROUNDS + 1):
            output.note(f"fsync, then groups of {', '.join(map(str, GROUPS))}: round {number} of {_ROUNDS}")
            rates.setdefault("fsync_per_s", []).append(_rate(_syncing(top / "pages"), seconds)[0])
            for size in GROUPS:
                rate, cpu_us = _rate(_saving(opened, every, size), seconds)
                rates.setdefault(f"groups_of_{size}_per_s", []).append(rate)
                rates.setdefault(f"groups_of_{size}_cpu_us", []).append(cpu_us)
    finally:
        opened.close()
    return {name: round(statistics.median(each)) for name, each in rates.items()}


def transitions() -> Iterator[Sequence[Save]]:
    """Yield the saves of changes of tasks' states, of many tasks by turns, without end."""
    for number in count(1):
        job_state, task_state, kind = _STATES[number // _TASKS % len(_STATES)]
        serial = number % _TASKS
        id, at = JobId(f"train-{serial:08x}"), float(number)
        spec = JobSpec(
            "train",
            command="python3 train.py --epochs 10",
            gpus=1,
            env={"DATA": "/data/sets/images"},
            user="gpu",
        )
        task = Task(TaskId(f"{id}.1"), AgentId(f"agent-S{serial % 100}"), f"{id}.1", id, task_state, at,
                    gpus=(GpuId(f"GPU-{serial:012x}"),))  # fmt: skip
        yield (
            SaveJob(Job(id, spec, at, serial, job_state)),
            SaveTask(task),
            KeepEvent(LogEvent(number, at, kind, id, "ann")),
        )


def _rate(steps: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Return the rate per second that `steps` counts, and processor time of each count in microseconds."""
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    while (took_s := time.perf_counter() - began) < seconds:
        done += steps()
    return done / took_s, (time.process_time() - cpu) * 1e6 / max(done, 1)


def _syncing(path: Path) -> Callable[[], int]:
    """Return a function that writes and syncs ten pages of a file, the least work of a transaction."""
    path.write_bytes(_PAGE * _PAGES)
    places = cycle(range(0, len(_PAGE) * _PAGES, len(_PAGE)))

    def once() -> int:
        with path.open("r+b", buffering=0) as file:
            for place in islice(places, 10):
                os.pwrite(file.fileno(), _PAGE, place)
                os.fdatasync(file.fileno())
        return 10

    return once


def _saving(opened: "SqliteStore", every: Iterator[Sequence[Save]], size: int) -> Callable[[], int]:
    def once() -> int:
        opened.save([save for saves in islice(every, size) for save in saves])
        return size

    return once


# --- the scheduler's own groups


class _Counting:
    """A `Store` that counts changed states of jobs and tasks, and transactions."""

    def __init__(self, inner: "SqliteStore") -> None:
        self._inner = inner
        self._states: dict[str, object] = {}
        self.transitions = self.commits = 0

    def load(self) -> Saved:
        return self._inner.load()

    def events(self) -> Sequence[LogEvent]:
        return self._inner.events()

    def save(self, batch: Iterable[Save]) -> None:
        saves = list(batch)
        self._inner.save(saves)
        self.commits += 1
        for save in saves:
            if isinstance(save, SaveJob):
                self._note(save.job.id, save.job.state)
            elif isinstance(save, SaveTask):
                self._note(save.task.id, save.task.state)

    def _note(self, id: str, state: object) -> None:
        self.transitions += self._states.get(id) != state
        self._states[id] = state

    def confirm(self) -> None:
        self._inner.confirm()

    def close(self) -> None:
        self._inner.close()


def _scheduled(path: Path, jobs: int) -> dict[str, float]:
    """Return the rate of changed states while a scheduler takes, launches and kills jobs, and changes per commit."""
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.adapters.sqlite_store import SqliteStore
    from mesos_gpu.api.asking import job_kill, new_job
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.ready_cluster import ReadyCluster

    clock, counting = SystemClock(), _Counting(SqliteStore(path))

    def put(event: Any) -> None:
        daemon.put(event)

    daemon = Daemon(
        counting, counting.load(), ReadyCluster(_AGENTS, put, clock.now), clock, Settings.of("e", "m")
    )
    daemon.start()
    began = time.perf_counter()
    spec = JobSpec("bench", command="true", cpus=0.1, mem_mib=32)
    asked = [daemon.request(new_job(spec)) for _ in range(jobs)]
    wait(asked)
    ids = {each.result().id for each in asked}
    poll("all run", lambda: len(ids & _in_state(daemon, JobState.RUNNING)) == jobs, 300)
    wait([daemon.request(job_kill(id)) for id in ids])
    poll("all have ended", lambda: len(ids & _in_state(daemon, JobState.KILLED)) == jobs, 300)
    took_s = time.perf_counter() - began
    daemon.stop()
    return {
        "scheduler_transitions_per_s": round(counting.transitions / took_s),
        "scheduler_transitions_per_commit": round(counting.transitions / counting.commits, 1),
    }


def _in_state(daemon: Any, state: JobState) -> set[JobId]:
    ids: set[JobId] = daemon.read(
        lambda view: {id for id, job in view.jobs.items() if job.state is state}
    ).result()
    return ids
