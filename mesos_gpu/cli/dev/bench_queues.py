"""`mesos-gpu bench queues`: one match, and one answer to why a job waits, through a tree of 500 leaves."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Budget,
    Guarantee,
    Period,
    QueueDocument,
    QueueSpec,
)

if TYPE_CHECKING:
    from mesos_gpu.testing.builders import World

_CLUSTERS: Final = ((100, 4), (1_250, 8))  # nodes, and GPUs of each
_FAN: Final = (5, 5, 4, 5)  # queues below each, of four levels
_ROUNDS: Final = 7


@click.command()
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(1), help="That wait.")
@json_option
def queues(jobs: int, as_json: bool) -> None:
    """Match 10,000 jobs of 500 leaves on full clusters, with that tree and without; processor time in ms.

    Then the time of 400 grants, and of their ends, with a tree, with budgets and without either.
    """
    result: dict[str, float] = {}
    for nodes, gpus in _CLUSTERS:
        for tree in (False, True):
            output.note(f"{nodes:,} nodes of {gpus} GPUs, {'a tree of queues' if tree else 'one line'}")
            name = f"{nodes}x{gpus}_{'tree' if tree else 'line'}"
            for figure, ms in _measured(nodes, gpus, jobs, tree=tree).items():
                result[f"{name}_{figure}_ms"] = round(ms, 1 if ms > 10 else 2)
    output.note("launches and ends, by what is on record of them")
    result |= {name: round(ms, 1) for name, ms in _grants().items()}
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "MS"), list(result.items()), empty="")


def _measured(nodes: int, gpus: int, jobs: int, *, tree: bool) -> dict[str, float]:
    from mesos_gpu.testing.builders import gpu, offer

    world = _world()
    document = _document()
    leaves = [path for path in document.queues if path.count("/") == len(_FAN) - 1]
    if tree:
        world.feed(ev.QueuesChanged(document, 0))
    for i in range(nodes):
        world.node(f"n{i}", *(gpu(f"n{i}-{k}") for k in range(gpus)), cpus=200)
        world.submit(f"on{i}", gpus=gpus, cpus=0.1, queue=leaves[i % len(leaves)], timeout_s=1000.0 + i % 7)
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
        step(world.state, ev.JobSubmitted(JobId(f"j{i}"), wanted), world.now, world.settings)
    for i in range(nodes):
        held = replace(offer(f"p{i}", f"n{i}", cpus=50), received_at=world.now)
        step(world.state, ev.OffersArrived((held,)), world.now, world.settings)

    def match() -> None:
        world.now += 1.1
        step(world.state, ev.Match(), world.now, world.settings)

    last = world.state.queue[-1][1]
    match()  # the first one makes what later ones keep
    why_ms = _ms(lambda: why_of(world.state, world.settings, world.now, world.state.jobs[last]))
    shares = _shares_ms(world.state, world.settings, world.now) if tree else {}
    return {"match": _ms(match), "why": why_ms, **shares}


def _world() -> "World":
    """Make a world that is not checked after each event."""
    from mesos_gpu.testing.builders import World

    class Quick(World):
        def feed(self, *events: ev.Event) -> list[fx.Effect]:
            """Step the events, then match; all effects."""
            steps = [step(self.state, event, self.now, self.settings) for event in (*events, ev.Match())]
            return [effect for effects in steps for effect in effects]

    world = Quick(Settings("executor", "monitor", report_stale_s=1e9))
    world.register()
    return world


def _grants() -> dict[str, float]:
    """Launch 400 jobs of one GPU at once, and end them one by one: in one line, with a tree, and with one where each
    job pays from three budgets."""
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
    from mesos_gpu.testing.builders import gpu, offer

    world, launches, ends = _world(), list[float](), list[float]()
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
            world.state.tasks[task_id] for task_id in world.state.live if world.state.tasks[task_id].job_id
        ]
        updates = [
            Status(task.id, "TASK_FINISHED", task.agent_id, uuid="dXVpZA==", at=world.now) for task in live
        ]
        world.now += 60
        ends.append(_once(partial(world.feed, *map(ev.StatusArrived, updates))))
    return {"launch": statistics.median(launches), "end": statistics.median(ends)}


def _shares_ms(state: State, settings: Settings, now: float) -> dict[str, float]:
    """Work out what all queues are due after a change of demand; the division of it; and as a baseline the division
    that keeps each number for who asks."""

    def anew() -> None:
        state.books.revision += 1
        shares().due("", DEFAULT_POOL)

    def shares() -> Shares:
        standing = standing_of(state, settings, now)
        assert standing is not None, "there is a tree"
        return standing

    demands, layout = shares().demands(DEFAULT_POOL), shares().layout(DEFAULT_POOL)
    amount = shares().pools[DEFAULT_POOL].milli
    return {
        "shares": _ms(anew),
        "division": _ms(lambda: layout.dues(amount, demands, {})),
        "division_explained": _ms(lambda: layout.explained(amount, demands, {})),
    }


def _document() -> QueueDocument:
    queues: dict[str, QueueSpec] = {}
    level = [""]
    for depth, fan in enumerate(_FAN):
        level = [f"{path}/q{i}".lstrip("/") for path in level for i in range(fan)]
        owed = {DEFAULT_POOL: Guarantee(40_000)} if depth == 0 else {}
        limit = {DEFAULT_POOL: 200_000} if depth == 1 else {}
        queues |= {
            path: QueueSpec(guarantee_gpus=owed, limit_gpus=limit, weight=1 + i % 5)
            for i, path in enumerate(level)
        }
    return QueueDocument(queues=queues)


def _once(done: Callable[[], object]) -> float:
    """Processor time of it, in ms."""
    began = thread_time()
    done()
    return 1000 * (thread_time() - began)


def _ms(done: Callable[[], object]) -> float:
    took_ms = []
    for _ in range(_ROUNDS):
        before = thread_time()
        done()
        took_ms.append((thread_time() - before) * 1000)
    return statistics.median(took_ms)
