"""Worlds of random acts, and all that the engine decides, saves and answers in them.

A file of tests/data/decisions has a line for `ACTS_OF_A_LINE` acts: seed, number of the last act, and a digest each of
the calls of Mesos, the saves, and the answers to readers. All digests depend only on the code, so a change
of one shows a change of behaviour. `python -m tests.decisions MIX SEED` prints what the digests are of.
"""

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.apps import ends_of, last_failures, launch_delays, past_versions
from mesos_gpu.engine.reading.jobs import (
    counts_of,
    defrag_problem,
    explain_job,
    idle_of,
    queue_uses,
    wait_reasons,
    waiting_jobs,
)
from mesos_gpu.engine.reading.nodes import gpu_statuses, rolling_of
from mesos_gpu.engine.reading.queues import (
    budget_periods,
    budget_standings,
    check_queues,
    explain_queue,
    path_share,
    plan_queues,
    queue_shares,
    unmet_demand,
)
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.job import GpuNodes, Placement
from mesos_gpu.model.jobs.quota import Quota
from mesos_gpu.model.saves import Save
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.room.defrag import plan
from tests.chaos import run as chaos
from tests.chaos.acts import do
from tests.chaos.queues import document_of
from tests.chaos.world import World

DATA: Final = Path(__file__).parents[1] / "data" / "decisions"
MIXES: Final = {
    "all": chaos.WEIGHTS,
    "apps": chaos.APPS_ALONE,
    "arrays": chaos.ARRAYS,
    "bookings": chaos.BOOKINGS,
    "hours": chaos.HOURS,
    "idle": chaos.IDLES,
    "queues": chaos.QUEUES,
    "reclaims": chaos.RECLAIMS,
    "shares": chaos.SHARES_ALONE,
    "switches": chaos.SWITCHES,
    "terms": chaos.TERMS,
    "together": chaos.TOGETHER,
}
#: Settings by turns.
VARIANTS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"placement": Placement.SPREAD, "aging_step_s": 60.0, "user_quota": Quota(pending=4)},
    {"placement": Placement.FRAGMENTATION, "gpu_nodes": GpuNodes.NEVER, "restart_s": 5.0},
)
SEEDS: Final = range(6)
ACTS: Final = 200  # of one world
ACTS_OF_A_LINE: Final = 10
KINDS: Final = ("calls", "saves", "answers")
#: Readers of all, by their names in the lines.
_READ: Final[Mapping[str, Callable[[View], object]]] = {
    "queues": queue_uses,
    "queue_shares": queue_shares,
    "budgets": budget_standings,
    "budget_periods": budget_periods,
    "unmet": unmet_demand,
    "gpus": gpu_statuses,
    "launch_delays": launch_delays,
    "drains": lambda view: view.drains.values(),
    "rolling": rolling_of,
}
_EXPLAINED: Final = 4  # jobs, drawn at the end of a line, whose wait is explained
_MAX_WAITING: Final = 20  # jobs of a list


def text_of(value: object) -> str:
    """Write a value so that equal values have one text, whatever the order of sets."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ", ".join(f"{each.name}={text_of(getattr(value, each.name))}" for each in fields(value))
        return f"{type(value).__name__}({pairs})"
    if isinstance(value, msgspec.Struct):
        pairs = ", ".join(f"{name}={text_of(getattr(value, name))}" for name in value.__struct_fields__)
        return f"{type(value).__name__}({pairs})"
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(sorted(f"{text_of(key)}: {text_of(each)}" for key, each in value.items())) + "}"
        )
    if isinstance(value, str | bytes):
        return repr(value)
    if isinstance(value, Set):
        return "{" + ", ".join(sorted(map(text_of, value))) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


class RecordedWorld(World):
    """A world that keeps what its engine does, as lines by kind.

    Args:
        shape: Seed of the number and kinds of agents.
        changes: Settings other than those of all worlds.
    """

    def __init__(self, shape: int, changes: Mapping[str, Any]) -> None:
        """Start the scheduler."""
        self.lines: dict[str, list[str]] = {kind: [] for kind in KINDS}
        super().__init__(shape)
        self.settings = self.witness.settings = self.settings.changed(**changes)

    def say(self, words: str) -> None:
        """Keep what acts do, and requests that are refused."""
        self.lines["calls"].append(words)

    def _commit(self, steps: Sequence[tuple[ev.Event, list[fx.Effect]]], stepped_at: float) -> None:
        for _, effects in steps:
            for effect in effects:
                kind = "saves" if isinstance(effect, Save | fx.Publish) else "calls"
                self.lines[kind].append(text_of(effect))
        super()._commit(steps, stepped_at)


def answers_of(world: World, chance: random.Random) -> Iterator[str]:
    """Yield answers to readers of a world, a line each; of jobs and queues, some by chance."""
    view = View(world.state, world.settings, world.now)
    waiting = [job for job in view.jobs.values() if not job.state.ended]
    for job in chance.sample(waiting, min(len(waiting), _EXPLAINED)):
        yield f"why {job.id} {text_of(explain_job(view, job.id))} {text_of(idle_of(view, job))}"
    yield from (f"waiting {text_of(each)}" for each in waiting_jobs(view, _MAX_WAITING))
    yield f"reasons {text_of(wait_reasons(view, _MAX_WAITING))}"
    yield from (f"{name} {text_of(read(view))}" for name, read in _READ.items())
    yield from (f"counts {array.id} {text_of(counts_of(view, array))}" for array in view.arrays.values())
    apps = [app.id for app in view.catalog.root.all_apps()]
    yield from (
        f"ends {id} {text_of(ends_of(view, [id]).get(id))} {text_of(past_versions(view, id))}" for id in apps
    )
    yield f"failures {text_of(last_failures(view, apps))}"
    for document in list(view.queue_versions.values())[-1:]:
        for path in chance.sample(sorted(document.queues), 1):
            yield f"queue {path} {text_of(path_share(view, path))} {text_of(explain_queue(view, path))}"
        asked = document_of(len(waiting), 77)
        yield f"plan {_answer(plan_queues, view, asked)} {_answer(check_queues, view, asked)}"
    for job in waiting[:1]:
        yield f"defragmentation {job.id} {text_of(plan(defrag_problem(view, job)))}"


def _answer(ask: Callable[[View, QueueDocument], object], view: View, document: QueueDocument) -> str:
    try:
        return text_of(ask(view, document))
    except MesosGpuError as error:
        return f"refused: {error.what}"


def record(mix: str, seed: int) -> Iterator[tuple[int, Mapping[str, list[str]]]]:
    """Let random acts happen, and yield what the engine did, after each `ACTS_OF_A_LINE` of them.

    Args:
        mix: Name of a mix of acts.
        seed: Seed of the world and its acts.
    """
    chance = random.Random(f"{mix} {seed}")
    world = RecordedWorld(chance.getrandbits(32), VARIANTS[seed % len(VARIANTS)])
    for number, act in enumerate(chaos.acts_of(chance, ACTS, MIXES[mix]), 1):
        do(world, act)
        if number % ACTS_OF_A_LINE == 0:
            world.lines["answers"] += answers_of(world, random.Random(number))
            yield number, world.lines
            world.lines = {kind: [] for kind in KINDS}


def digests(mix: str, seed: int) -> Iterator[str]:
    """Yield the lines of a file for one seed."""
    for number, lines in record(mix, seed):
        sums = (zlib.crc32("\n".join(lines[kind]).encode()) for kind in KINDS)
        yield " ".join((str(seed), str(number), *(f"{each:08x}" for each in sums)))


def difference(mix: str, seed: int, recorded: Sequence[str]) -> str:
    """Return where the engine differs from what was recorded first, in words; empty if it does not."""
    now = list(digests(mix, seed))
    for before, after in zip(recorded, now, strict=False):
        if before != after:
            _, number, *old = before.split()
            kinds = [kind for kind, a, b in zip(KINDS, old, after.split()[2:], strict=True) if a != b]
            last = int(number)
            return f"{', '.join(kinds)} of acts {last - ACTS_OF_A_LINE + 1} to {last} differ"
    return "" if len(recorded) == len(now) else f"{len(now)} lines, {len(recorded)} are recorded"


def read(mix: str) -> dict[int, list[str]]:
    """Read a file; the lines of each seed."""
    by_seed: dict[int, list[str]] = {seed: [] for seed in SEEDS}
    for line in (DATA / f"{mix}.txt").read_text().splitlines():
        by_seed[int(line.split()[0])].append(line)
    return by_seed
