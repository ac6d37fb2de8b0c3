"""`python -m bench queues`: matches, reclaim and explanations with a tree of 500 leaf queues.

`python -m bench arrays`: the time that waiting job arrays add to a match, and that of as many jobs.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.copies import copy_for_readers
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.forecast import offered_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.engine.tenancy.seats import seat
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.saves import Save
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Budget,
    Fairness,
    Guarantee,
    Period,
    QueueDocument,
    QueueSpec,
)
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.room.knapsack import Victim, worth
from mesos_gpu.policy.room.preemption import plan
from mesos_gpu.wire.mesos import report

if TYPE_CHECKING:
    from tests.doubles.builders import World

_CLUSTERS: Final = ((100, 4), (1_250, 8))  # nodes, and GPUs of each
_FAN: Final = (5, 5, 4, 5)  # queues below each, of four levels
_ROUNDS: Final = 5
_RUNNING: Final = JobSpec("runs", command="true", cpus=0.1, timeout_s=36_000.0, preemptible=True)


@click.command()
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(1), help="Waiting jobs.")
@json_option
def queues(jobs: int, as_json: bool) -> None:
    """Match 10,000 jobs of 500 leaf queues on full clusters, with the tree of queues and without.

    Also measured are the choice of jobs to preempt for guarantees, and then 400 launches and their ends with a tree,
    with budgets and with neither. Figures are processor time in ms.
    """
    result: dict[str, float] = {}
    for nodes, gpus in _CLUSTERS:
        for tree in (False, True):
            output.note(f"{nodes:,} nodes of {gpus} GPUs, {'a tree of queues' if tree else 'one line'}")
            name = f"{nodes}x{gpus}_{'tree' if tree else 'line'}"
            for figure, ms in _measured(nodes, gpus, jobs, tree=tree).items():
                result[f"{name}_{figure}_ms"] = round(ms, 1 if ms > 10 else 2)
        output.note(f"{nodes:,} nodes of {gpus} GPUs, reclaim")
        for figure, ms in {**_reclaims(nodes, gpus, jobs), **_plans(nodes, gpus)}.items():
            unit = "" if figure == "plans" else "_ms"
            result[f"{nodes}x{gpus}_reclaim_{figure}{unit}"] = round(ms, 1 if ms > 10 else 2)
    output.note("launches and ends, by what is on record of them")
    result |= {name: round(ms, 1) for name, ms in _grants().items()}
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "MS"), list(result.items()), empty="")


def _measured(nodes: int, gpus: int, jobs: int, *, tree: bool) -> dict[str, float]:
    cluster, document = MemoryCluster(), _document(nodes * gpus)
    if tree:
        cluster.step(ev.QueuesChanged(document, 0))
    leaves = _leaves(document)
    cluster.fill(nodes, gpus, [replace(_RUNNING, queue=leaf) for leaf in leaves])
    cluster.submit(jobs, leaves)
    state, settings = cluster.state, cluster.settings
    last = state.work.queue[-1][1]
    before = thread_time()
    cluster.match()  # the first match builds indexes that later ones keep
    first_ms = (thread_time() - before) * 1000
    match_ms = _ms(cluster.match)
    why_ms = _ms(lambda: why_of(state, settings, cluster.now, state.work.jobs[last]))
    copy_ms = _ms(lambda: copy_for_readers(state))  # the part of `why` on the engine's thread
    figures = {"first_match": first_ms, "match": match_ms, "why": why_ms, "copy_for_why": copy_ms}
    if not tree:
        return figures
    seats_ms = _ms(lambda: _seat_anew(state, settings, cluster.now))
    shares = _shares_ms(state, settings, cluster.now)
    cluster.step(ev.QueuesChanged(replace(document, fairness=Fairness.DRF), state.quota.queues.version))
    shares["shares_drf"] = _ms(lambda: _divide_anew(state, settings, cluster.now))
    return {**figures, "seats": seats_ms, **shares}


def _seat_anew(state: State, settings: Settings, now: float) -> None:
    """Compute the guaranteed admissions, as each match does first."""
    backlog = Backlog(
        state, settings, now, offered_of(state), reading=True, standing=standing_of(state, settings, now)
    )
    seat(Turn(state, settings, now), backlog.barriers.may_be_seated)


def _reclaims(nodes: int, gpus: int, jobs: int) -> dict[str, float]:
    """Measure matches while queues reclaim their guarantees from one queue that has borrowed all GPUs.

    Measured are the match that plans all reclaims, a match while these are under way, and a match before them.
    """
    cluster, document = MemoryCluster(), _document(nodes * gpus)
    leaves = _leaves(document)
    owed = {DEFAULT_POOL: Guarantee(nodes * gpus * 100)}  # half of all, of five top queues together
    queues = {
        path: replace(spec, guarantee_gpus={} if "/" in path else owed, limit_gpus={})
        for path, spec in document.queues.items()
    }
    queues["borrower"] = QueueSpec(notice_s=3600.0)
    cluster.step(ev.QueuesChanged(QueueDocument(queues=queues), 0))
    cluster.fill(nodes, gpus, [replace(_RUNNING, queue="borrower", timeout_s=None)])
    cluster.submit(jobs, leaves)
    cluster.match()
    before_ms = _ms(cluster.match)
    cluster.now += cluster.settings.queue.preempt_after_s
    planning_ms = _ms(cluster.match, rounds=1)
    return {
        "plans": sum(job.room_made_at is not None for job in cluster.state.work.jobs.values()),
        "match_before_plans": before_ms,
        "match_that_plans": planning_ms,
        "match_with_plans": _ms(cluster.match),
    }


def _plans(nodes: int, gpus: int) -> dict[str, float]:
    """Measure the choice of victims on nodes full of jobs of one GPU, and as a baseline that on each node alone."""
    chance = random.Random(0)
    victims: dict[JobId, Victim] = {}
    there = []
    for n in range(nodes):
        cards = [Gpu(GpuId(f"g{n}-{i}"), "T4", 16384, i, "", 0) for i in range(gpus)]
        held = [
            Allocation(JobId(f"j{n}-{i}"), Resources(cpus=4, gpus=1), (card,)) for i, card in enumerate(cards)
        ]
        there.append(NodeCapacity(AgentId(f"n{n}"), f"n{n}", Resources(cpus=8), allocations=tuple(held)))
        for each in held:
            assert each.job_id is not None
            victims[each.job_id] = Victim(each.job_id, 0, chance.randrange(1_000_000))
    request = Request(Resources(cpus=4, gpus=gpus // 2), GpuRequest(gpus // 2))
    gang = replace(request, tasks=4)

    def each_alone() -> None:
        min(worth(chosen) for node in there if (chosen := plan(request, 1, [node], victims)))

    return {
        "choice": _ms(lambda: plan(request, 1, there, victims)),
        "choice_for_gang": _ms(lambda: plan(gang, 4, there, victims)),
        "choice_on_each_node": _ms(each_alone, rounds=1),
    }


class MemoryCluster:
    """An engine with simulated nodes on which all launches run."""

    def __init__(self, levels: Mapping[str, int] = MappingProxyType({})) -> None:
        """Create an engine without nodes.

        Args:
            levels: Number of nodes in each group of a level of the fabric, by the name of the level.
        """
        self._levels = levels
        self.settings = Settings.of(
            "executor", "monitor", report_stale_s=1e9, preempt_after_s=60.0, levels=(*levels,)
        )
        self.state, self.now = State(started_at=1000.0), 1000.0
        self.step(ev.Registered("fw-1", "http://master:5050"))

    def step(self, event: ev.Event) -> list[fx.Effect]:
        """Step an event and return its effects."""
        return step(self.state, event, self.now, self.settings)

    def match(self) -> list[fx.Effect]:
        """Let time pass until the next match is due, and match."""
        self.now += self.settings.placing.match_interval_s + 0.1
        return self.step(ev.Match())

    def arrive(self, nodes: int, gpus: int) -> None:
        """Add nodes with a running monitor."""
        self.offer("first", [gpus] * nodes, cpus=200)
        for task in self._launched():
            cards = [
                Gpu(GpuId(f"{task.agent_id}-{i}"), "T4", 16384, i, "", 0, health=Health.OK)
                for i in range(gpus)
            ]
            self._runs(task, report.encode(Inventory(tuple(cards), "simulated", None)))

    def fill(self, nodes: int, gpus: int, specs: Sequence[JobSpec]) -> None:
        """Add nodes, and run a job on all GPUs of each."""
        self.arrive(nodes, gpus)
        self.offer("second", [gpus] * nodes, cpus=199)
        for i in range(nodes):
            spec = replace(specs[i % len(specs)], name=f"on{i}", gpus=gpus)
            self.step(ev.JobSubmitted(JobId(f"on{i}"), spec))
        for task in self._launched():
            self.now += 1.0
            self._runs(task)
        self.offer("third", [0] * nodes, cpus=50)
        assert len(self.state.work.live) == 2 * nodes, "a job runs on each node, beside its monitor"

    def submit(self, jobs: int, leaves: Sequence[str]) -> None:
        """Submit jobs of many kinds to all queues."""
        for i in range(jobs):
            wanted = JobSpec(
                f"j{i}",
                command="true",
                gpus=1 + i % 4,
                cpus=0.5 + i % 7,
                priority=i % 5,
                queue=leaves[i * 7 % len(leaves)],
                timeout_s=(None, 30.0, 5000.0)[i % 3],
                preemptible=bool(i % 2),
            )
            self.step(ev.JobSubmitted(JobId(f"j{i}"), wanted))

    def offer(self, name: str, gpus: Sequence[int], *, cpus: float) -> None:
        """Add an offer of each node.

        Args:
            name: Prefix of the ids of the offers.
            gpus: Number of GPUs in the offer of each node.
            cpus: Processors in each offer.
        """
        offers = []
        for i, count in enumerate(gpus):
            amounts = {"cpus": cpus, "mem": 65536.0, "gpus": float(count)}
            scalars = tuple(
                Scalar(name, amount, '{"role":"*"}') for name, amount in amounts.items() if amount
            )
            there = {level: f"{level}-{i // size}" for level, size in self._levels.items()}
            url = f"http://n{i}:5051"
            offers.append(
                Offer(
                    OfferId(f"{name}-{i}"),
                    AgentId(f"n{i}"),
                    f"n{i}",
                    url,
                    scalars,
                    there,
                    self.now,
                    ports=(PortRange(31000, 31999),),
                )
            )
        self.step(ev.OffersArrived(tuple(offers)))

    def _launched(self) -> list[Task]:
        launches = [effect for effect in self.match() if isinstance(effect, fx.Launch)]
        return [item.task for launch in launches for item in launch.tasks]

    def _runs(self, task: Task, data: bytes = b"") -> None:
        self.step(ev.StatusArrived(Status(task.id, "TASK_RUNNING", task.agent_id, uuid="u", data=data)))


def quick_world() -> "World":
    """Return a `World` that does not check invariants after each event."""
    from tests.doubles.builders import World

    class Quick(World):
        def feed(self, *events: ev.Event) -> list[fx.Effect]:
            """Step events and then a match; return all effects."""
            steps = [step(self.state, event, self.now, self.settings) for event in (*events, ev.Match())]
            return [effect for effects in steps for effect in effects]

    world = Quick(Settings.of("executor", "monitor", report_stale_s=1e9))
    world.register()
    return world


def _grants() -> dict[str, float]:
    """Measure 400 launches at once and their ends one by one: without a tree of queues, with one, and with budgets.

    With budgets, each job is charged to three of them.
    """
    queues = {"a": QueueSpec(), **{f"a/{i}": QueueSpec() for i in range(10)}}
    budget = Budget(10**12, period=Period.YEAR)
    paid = {
        path: replace(queue, budget=budget, user_budgets={} if path == "a" else {EVERYBODY: budget})
        for path, queue in queues.items()
    }
    documents = {"line": None, "tree": QueueDocument(queues=queues), "budgets": QueueDocument(queues=paid)}
    return {
        f"400_grants_{name}_{figure}_ms": ms
        for name, document in documents.items()
        for figure, ms in _grants_ms(document).items()
    }


def _grants_ms(document: QueueDocument | None) -> dict[str, float]:
    from tests.doubles.builders import gpu, offer

    world, launches, ends = quick_world(), list[float](), list[float]()
    if document is not None:
        world.feed(ev.QueuesChanged(document, 0))
    for i in range(50):
        world.node(f"n{i}", *(gpu(f"n{i}-{k}") for k in range(8)), cpus=200)
    for turn in range(_ROUNDS):
        for i in range(400):
            spec = JobSpec("j", command="true", gpus=1, cpus=0.1, queue=f"a/{i % 10}", user=f"u{i % 7}")
            step(world.state, ev.JobSubmitted(JobId(f"j{turn}-{i}"), spec), world.now, world.settings)
        world.now += 2
        offers = [
            replace(offer(f"o{turn}-{i}", f"n{i}", cpus=100, gpus=8), received_at=world.now)
            for i in range(50)
        ]
        launches.append(_once(partial(world.feed, ev.OffersArrived(tuple(offers)))))
        live = [
            world.state.work.tasks[task_id]
            for task_id in world.state.work.live
            if world.state.work.tasks[task_id].job_id
        ]
        updates = [
            Status(task.id, "TASK_FINISHED", task.agent_id, uuid="dXVpZA==", at=world.now) for task in live
        ]
        world.now += 60
        ends.append(_once(partial(world.feed, *map(ev.StatusArrived, updates))))
    return {"launch": statistics.median(launches), "end": statistics.median(ends)}


def _shares_ms(state: State, settings: Settings, now: float) -> dict[str, float]:
    """Measure fair shares after a change of demand, and their division without and with explanations."""
    shares = _shares(state, settings, now)
    demands, layout = shares.demands(DEFAULT_POOL), shares.layout(DEFAULT_POOL)
    amount = shares.pools[DEFAULT_POOL].milli
    return {
        "shares": _ms(lambda: _divide_anew(state, settings, now)),
        "division": _ms(lambda: layout.dues(amount, demands, {})),
        "division_explained": _ms(lambda: layout.explained(amount, demands, {})),
    }


def _divide_anew(state: State, settings: Settings, now: float) -> None:
    state.books.revision += 1
    _shares(state, settings, now).due("", DEFAULT_POOL)


def _shares(state: State, settings: Settings, now: float) -> Shares:
    return standing_of(state, settings, now)


def _document(gpus: int) -> QueueDocument:
    """Return queues of a cluster: top queues have a guarantee, and those below a limit of half of all GPUs."""
    queues: dict[str, QueueSpec] = {}
    level = [""]
    for depth, fan in enumerate(_FAN):
        level = [f"{path}/q{i}".lstrip("/") for path in level for i in range(fan)]
        owed = {DEFAULT_POOL: Guarantee(40_000)} if depth == 0 else {}
        limit = {DEFAULT_POOL: gpus * 500} if depth == 1 else {}
        queues |= {
            path: QueueSpec(guarantee_gpus=owed, limit_gpus=limit, weight=1 + i % 5)
            for i, path in enumerate(level)
        }
    return QueueDocument(queues=queues)


def _leaves(document: QueueDocument) -> list[str]:
    return [path for path in document.queues if path.count("/") == len(_FAN) - 1]


def _once(done: Callable[[], object]) -> float:
    """Run a function and return its processor time in ms."""
    began = thread_time()
    done()
    return 1000 * (thread_time() - began)


def _ms(done: Callable[[], object], rounds: int = _ROUNDS) -> float:
    took_ms = []
    for _ in range(rounds):
        before = thread_time()
        done()
        took_ms.append((thread_time() - before) * 1000)
    return statistics.median(took_ms)


# --- job arrays

_ARRAY_NODES, _ARRAY_GPUS = 100, 4
_ARRAYS: Final = 10


@click.command()
@click.option(
    "--tasks", default=10_000, show_default=True, type=click.IntRange(1), help="Tasks of each array."
)
@json_option
def arrays(tasks: int, as_json: bool) -> None:
    """Match 10 arrays of 10,000 tasks on a full cluster of 400 GPUs, with a tree of queues and without.

    For comparison 10 jobs are matched, and as many jobs as the arrays have tasks; figures are processor time in ms.
    Then the time to accept and save an array of as many tasks is measured.
    """
    result: dict[str, float] = {}
    for tree in (False, True):
        place = "tree" if tree else "line"
        for name, array, count in (
            (f"{_ARRAYS}_jobs", "", 1),
            (f"{_ARRAYS}_arrays_of_{tasks}", f"0-{tasks - 1}", 1),
            (f"{_ARRAYS * tasks}_jobs", "", tasks),
        ):
            output.note(f"{name} wait, in one {place}")
            result[f"{place}_{name}_match_ms"] = round(_match_ms(array, count, tree=tree), 2)
    result["submit_ms"] = round(_submit_ms(tasks), 2)
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "MS"), list(result.items()), empty="")


def _full(*, tree: bool) -> tuple[MemoryCluster, list[str]]:
    cluster, document = MemoryCluster(), _document(_ARRAY_NODES * _ARRAY_GPUS)
    if tree:
        cluster.step(ev.QueuesChanged(document, 0))
    leaves = _leaves(document)
    cluster.fill(_ARRAY_NODES, _ARRAY_GPUS, [replace(_RUNNING, queue=leaf) for leaf in leaves])
    return cluster, leaves


def _spec(name: str, queue: str, array: str = "") -> JobSpec:
    return JobSpec(name, command="true", gpus=1, cpus=0.1, queue=queue, array=array or None)


def _match_ms(array: str, count: int, *, tree: bool) -> float:
    """Return the median time of a match with waiting jobs or an array in each of ten queues."""
    cluster, leaves = _full(tree=tree)
    for i in range(_ARRAYS):
        for j in range(count):
            spec = _spec(f"w{i}", leaves[i * 7 % len(leaves)], array)
            cluster.step(ev.JobSubmitted(JobId(f"w{i}x{j}-0a1b2c3d"), spec))
    cluster.match()  # the first match builds indexes that later ones keep
    return _ms(cluster.match)


def _submit_ms(tasks: int) -> float:
    """Return the ms to accept an array and save it to disk, from the event of the request to its answer."""
    from mesos_gpu.adapters.sqlite_store import SqliteStore

    cluster, leaves = _full(tree=False)
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as directory:
        store = SqliteStore(Path(directory) / "state.sqlite")
        try:
            before = perf_counter()
            spec = _spec("sweep", leaves[0], f"0-{tasks - 1}%200")
            effects = cluster.step(ev.JobSubmitted(JobId("sweep-0a1b2c3d"), spec))
            store.save([effect for effect in effects if isinstance(effect, Save)])
            return (perf_counter() - before) * 1000
        finally:
            store.close()
