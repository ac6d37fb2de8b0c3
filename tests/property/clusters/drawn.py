"""Small clusters drawn at random: racks, jobs that run, limits and guarantees of queues, and a job to be started."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.offer import Offer, resources_of
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import Guarantee, Limits, Pool, QueueSpec
from tests.doubles.builders import gpu, offer
from tests.unit.engine.tenancy.lending import POOL, REPORTS_S, Tenants

SHARING: Final = Sharing(80_000, ((Ability.SHIM, ""),))
#: Kinds of clusters, each with other rules.
KINDS: Final = ("alone", "behind", "names", "limits", "users", "guarantees", "lending", "pools")
LEAVES: Final = ("team/a", "team/b", "rest")
USERS: Final = ("ann", "bob")
_COMPARING: Final = (Operator.UNIQUE, Operator.CLUSTER, Operator.GROUP_BY, Operator.MAX_PER)


@dataclass(frozen=True)
class Work:
    """A job.

    Attributes:
        name: Name, which is its id.
        queue: Path of its queue.
        tasks: Number of its tasks.
        gpus: GPUs of each task.
        milli: Thousandths of each GPU.
        priority: Priority, higher before lower.
        preemptible: Whether it may be stopped for other jobs.
        user: Name of its user.
        constraints: Constraints of each task.
    """

    name: str
    queue: str
    tasks: int = 1
    gpus: int = 1
    milli: int = WHOLE
    priority: int = 0
    preemptible: bool = True
    user: str = USERS[0]
    constraints: tuple[Constraint, ...] = ()

    @property
    def cost(self) -> int:
        """Thousandths of GPUs of all tasks."""
        return self.tasks * self.gpus * self.milli


@dataclass(frozen=True)
class Terms:
    """Guarantee, limit and lend limit of a queue, in GPUs; None for no limit."""

    owed: int = 0
    most: int | None = None
    lends: int | None = None


@dataclass(frozen=True)
class Drawn:
    """A cluster, and a job that is handed in.

    Attributes:
        racks: Rack of each node.
        sizes: GPUs of each node.
        running: Jobs that run, with the number of their node.
        names: Limits of queues that are names, GPUs.
        terms: Queues of a tree; empty if there is no tree.
        users: Limits of users in a tree.
        pools: Limits of queues by pool, GPUs. If there are any queues here, each rack is a pool.
        uses: Pools of each leaf that orders its pools, so that all tasks of a gang start in one; others may use all.
        first: Job that waits before the other one for a certain node.
        job: Job that is handed in.
    """

    racks: tuple[str, ...]
    sizes: tuple[int, ...]
    running: tuple[tuple[Work, int], ...]
    job: Work
    names: Mapping[str, int] = field(default_factory=dict)
    terms: Mapping[str, Terms] = field(default_factory=dict)
    users: Mapping[str, Limits] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: Work | None = None


def drawn(chance: random.Random, kind: str) -> Drawn:
    """Draw a cluster of a kind."""
    sizes = tuple([chance.randint(1, chance.choice((2, 4, 4, 8))) for _ in range(chance.randint(2, 5))])
    racks = chance.randint(1, 3)
    queues = {"alone": ("default",), "behind": ("default",), "names": ("small", "default")}.get(kind, LEAVES)
    made = Drawn(
        tuple([f"r{chance.randrange(racks)}" for _ in sizes]),
        sizes,
        tuple(_running(chance, sizes, queues)),
        _job(chance, queues, kind),
    )
    return _RULES[kind](chance, made)


def _part(chance: random.Random) -> int:
    return chance.choice((250, 500)) if chance.random() < 0.25 else WHOLE


def _running(
    chance: random.Random, sizes: tuple[int, ...], queues: tuple[str, ...]
) -> list[tuple[Work, int]]:
    running: list[tuple[Work, int]] = []
    for node, size in enumerate(sizes):
        free = size
        while free and chance.random() < 0.75:
            milli = _part(chance)
            work = Work(
                f"j{len(running)}",
                chance.choice(queues),
                gpus=chance.randint(1, min(free, 3)) if milli == WHOLE else 1,
                milli=milli,
                priority=chance.choice((0, 0, 1, 2)),
                preemptible=chance.random() < 0.8,
                user=chance.choice(USERS),
            )
            running.append((work, node))
            free -= work.gpus
    return running


def _job(chance: random.Random, queues: tuple[str, ...], kind: str) -> Work:
    milli = _part(chance)
    return Work(
        "job",
        chance.choice(queues),
        tasks := chance.choice((1, 1, 2, 2, 3, 4)),
        chance.randint(1, 3) if milli == WHOLE else 1,
        milli,
        chance.choice((0, 1, 2, 3)),
        kind not in ("guarantees", "lending") or chance.random() < 0.7,
        chance.choice(USERS),
        tuple(_constraints(chance, tasks)),
    )


def _constraints(chance: random.Random, tasks: int) -> list[Constraint]:
    made: list[Constraint] = []
    if chance.random() < 0.15:
        made.append(Constraint("rack", Operator.CLUSTER, f"r{chance.randrange(3)}"))
    for _ in range(chance.choice((0, 1, 1, 2)) if tasks > 1 else 0):
        operator = chance.choice(_COMPARING)
        value = "" if operator in (Operator.UNIQUE, Operator.CLUSTER) else str(chance.randint(1, 3))
        made.append(Constraint(chance.choice(("hostname", "rack")), operator, value))
    return made


# --- rules


def held(made: Drawn, path: str) -> int:
    """Return the thousandths of GPUs that the jobs which run hold in a queue and below it."""
    return sum(work.cost for work, _ in made.running if f"{work.queue}/".startswith(f"{path}/"))


def _alone(chance: random.Random, made: Drawn) -> Drawn:
    return made


def _behind(chance: random.Random, made: Drawn) -> Drawn:
    """Let a job wait before the other one for a node that is too full for it."""
    node = chance.randrange(len(made.sizes))
    here = (Constraint("hostname", Operator.IS, f"a{node}.example"),)
    first = Work("first", "default", gpus=made.sizes[node], priority=made.job.priority, constraints=here)
    return replace(made, first=first) if any(at == node for _, at in made.running) else made


def _names(chance: random.Random, made: Drawn) -> Drawn:
    return replace(made, names={"small": -(-held(made, "small") // WHOLE) + chance.randint(0, 3)})


def _limits(chance: random.Random, made: Drawn) -> Drawn:
    most = {path: chance.choice((None, chance.randint(1, sum(made.sizes)))) for path in ("team", *LEAVES)}
    return replace(made, terms={path: Terms(most=gpus) for path, gpus in most.items()})


def _users(chance: random.Random, made: Drawn) -> Drawn:
    limits = (
        None,
        Limits(max_running=chance.randint(1, 4)),
        Limits(max_gpus=chance.randint(1, sum(made.sizes))),
    )
    users = {user: limit for user in (*USERS, "*") if (limit := chance.choice(limits)) is not None}
    return replace(made, terms={path: Terms() for path in ("team", *LEAVES)}, users=users)


def _guarantees(chance: random.Random, made: Drawn) -> Drawn:
    first = chance.randint(0, sum(made.sizes))
    second = chance.randint(0, sum(made.sizes) - first)
    team = {"team": Terms(first + second), "team/a": Terms(first), "team/b": Terms(second)}
    return replace(made, terms={**team, "rest": Terms()})


def _lending(chance: random.Random, made: Drawn) -> Drawn:
    terms = dict(_guarantees(chance, made).terms)
    if chance.random() < 0.3:
        terms[made.job.queue] = replace(terms[made.job.queue], most=chance.randint(1, sum(made.sizes)))
    for path in ("team/a", "team/b"):
        if chance.random() < 0.7:
            terms[path] = replace(terms[path], lends=chance.randint(0, terms[path].owed))
    return replace(made, terms=terms)


def _pools(chance: random.Random, made: Drawn) -> Drawn:
    racks = sorted(set(made.racks))
    sizes = {rack: sum(s for s, r in zip(made.sizes, made.racks, strict=True) if r == rack) for rack in racks}
    uses = {
        leaf: tuple(chance.sample(racks, chance.randint(1, len(racks))))
        for leaf in LEAVES
        if chance.random() < 0.4
    }
    limits = {
        path: {
            rack: chance.randint(1, sizes[rack]) for rack in uses.get(path, racks) if chance.random() < 0.5
        }
        for path in ("team", *LEAVES)
    }
    return replace(
        made,
        terms={path: Terms() for path in limits},
        pools=limits,
        uses=uses,
    )


_RULES: Final = {
    "alone": _alone, "behind": _behind, "names": _names, "limits": _limits, "users": _users,
    "guarantees": _guarantees, "lending": _lending,
    "pools": _pools,
}  # fmt: skip


# --- the engine


class Racks(Tenants):
    """A cluster whose agents have racks, and GPUs that can be shared."""

    racks: tuple[str, ...]

    def offers(self, *offers: Offer) -> list[fx.Effect]:
        """Let offers arrive with the racks of their agents."""
        return super().offers(
            *(replace(each, attributes={"rack": self.racks[int(each.agent_id[1:])]}) for each in offers)
        )

    def offer_again(self) -> list[fx.Effect]:
        """Offer the GPUs that nothing holds of each node, and processors and memory also where there are none."""
        effects: list[fx.Effect] = []
        for node in list(self.state.cluster.nodes.values()):
            if self.now - (node.reported_at or 0.0) >= REPORTS_S:
                effects += self.report(node.id, *node.gpus)
            tasks = [
                task for task in self.state.work.tasks.values() if task.agent_id == node.id and not task.ended
            ]
            used = {card for task in tasks for card in (*task.gpus, *filter(None, (task.covers,)))}
            offers = [each for each in self.state.cluster.offers.values() if each.agent_id == node.id]
            offered = sum(resources_of(each.resources).gpus for each in offers)
            if offered < (free := len(node.gpus) - len(used)) or not offers:
                self.serial += 1
                effects += self.offers(offer(f"r{self.serial}", node.id, gpus=free - offered, cpus=8))
        return effects


def fields_of(work: Work) -> dict[str, object]:
    """Return the request of a job."""
    part = {} if work.milli == WHOLE else {"gpu_milli": work.milli}
    return {
        "queue": work.queue, "tasks": work.tasks, "gpus": work.gpus, "priority": work.priority, "user": work.user,
        "preemptible": work.preemptible, "constraints": work.constraints, "cpus": 0.1, "mem_mib": 32, **part,
    }  # fmt: skip


def world_of(made: Drawn) -> Racks:
    """Return an engine with a cluster in which the jobs of the cluster run, and its rules hold."""
    settings = Settings.of(
        "e", "m", report_stale_s=1e9, aging_step_s=inf, idle_linger_s=inf, offer_hold_s=inf,
        queue_limits=dict(made.names),
    )  # fmt: skip
    world = Racks(settings)
    world.racks = made.racks
    world.register()
    for number, size in enumerate(made.sizes):
        cards = [replace(gpu(f"g{number}{i}"), sharing=SHARING) for i in range(size)]
        world.cards[f"a{number}"] = size
        world.node(f"a{number}", *cards, cpus=64)
    for work, node in made.running:
        here = Constraint("hostname", Operator.IS, f"a{node}.example")
        world.submit(work.name, **fields_of(replace(work, constraints=(here,))))
    for _ in range(4):
        world.passes(1.0)
        world.starts()
    assert all(world.job(work.name).state is JobState.RUNNING for work, _ in made.running), made
    if made.terms:
        pools = tuple([Pool(rack, attributes={"rack": rack}) for rack in sorted(set(made.racks))])
        queues = {path: _spec(made, path) for path in made.terms}
        world.document_of(queues, users=made.users, pools=pools if made.pools else ())
    world.passes(1.0)
    return world


def _spec(made: Drawn, path: str) -> QueueSpec:
    terms = made.terms[path]
    limits = dict(made.pools.get(path, {})) if terms.most is None else {POOL: terms.most}
    return QueueSpec(
        guarantee_gpus={POOL: Guarantee(terms.owed * WHOLE)} if terms.owed else {},
        limit_gpus={pool: gpus * WHOLE for pool, gpus in limits.items()},
        lend_limit_gpus={} if terms.lends is None else {POOL: terms.lends * WHOLE},
        pools=made.uses.get(path),
    )
