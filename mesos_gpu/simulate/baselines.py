"""Policies of other schedulers for many tenants on one cluster, by their documents and sources, as baselines.

The comparison favours no policy: all run on the same nodes, have the same costs of a stop, keep freed GPUs for the job
that they were freed for (if they choose a node at all), and let jobs pass a blocked job of another size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from mesos_gpu.policy.tenancy.fair_tree import Account, ranks
from mesos_gpu.policy.tenancy.usage import MICRO, Usage
from mesos_gpu.simulate.tenancy.loop import Live, Loop, Policy, Where

HALF_LIFE_S: Final = 7 * 86400  # Slurm's PriorityDecayHalfLife
COOK_EVERY_S: Final = 300.0
COOK_SAFE: Final = 1.0  # safe-dru-threshold: tasks within the share of their user are not stopped
COOK_DIFF: Final = 0.5  # min-dru-diff
COOK_MOST: Final = 64  # max-preemption of a cycle
MAX_TRIED: Final = 8  # most jobs of a node of which all combinations of victims are tried


@dataclass(slots=True)
class Drf(Policy):
    """Dominant resource fairness with GPUs as the only resource: the tenant with the lowest share goes first.

    The share is the GPUs that a tenant holds, divided by its guarantee. No job is stopped. Jobs of one tenant run first
    come, first served; a job that does not fit is passed by jobs of other sizes.
    """

    def order(self, loop: Loop, live: Live) -> tuple[float, ...]:
        """Return the sort key of a waiting job: the share of its tenant; the lowest is next."""
        return (loop.held[live.job.tenant] / loop.gpus(live.job.tenant),)

    def decide(self, loop: Loop) -> None:
        """Start all waiting jobs that fit, in an order that changes with each start."""
        blocked: set[tuple[str, int]] = set()  # tenants and sizes of jobs that do not fit
        while (live := self._next(loop, blocked)) is not None:
            where = loop.fit(live)
            if where is not None:
                loop.start(live, where)
            elif not self.make_room(loop, live):
                blocked.add((live.job.tenant, live.job.gpus))

    def make_room(self, loop: Loop, live: Live) -> bool:
        """Stop others for a job, if the policy does that; return whether the job starts thereby."""
        return False

    def _next(self, loop: Loop, blocked: set[tuple[str, int]]) -> Live | None:
        def first_of(tenant: str) -> Iterator[Live]:
            return (live for live in loop.waiting.heads(tenant) if (tenant, live.job.gpus) not in blocked)

        every = [live for tenant in loop.tenants for live in first_of(tenant)]
        return min(
            every, key=lambda live: (*self.order(loop, live), live.job.tenant, live.index), default=None
        )


@dataclass(slots=True)
class Fifo(Drf):
    """First come, first served over all tenants; a job that does not fit is passed by jobs of other sizes."""

    def order(self, loop: Loop, live: Live) -> tuple[float, ...]:
        """Return the sort key of a waiting job: its number by submission; the oldest is next."""
        return (live.index,)


@dataclass(slots=True)
class FairTree(Policy):
    """Slurm's Fair Tree: tenants are ranked by shares over decayed use, and then the users of each tenant.

    All users of a tenant go before all users of the tenants ranked below it.
    """

    use: dict[tuple[str, str], Usage] = field(default_factory=dict)
    held: Counter[tuple[str, str]] = field(default_factory=Counter)

    def decide(self, loop: Loop) -> None:
        """Charge past use, then start all waiting jobs that fit, by rank."""
        now = round(loop.now * MICRO)
        self._charge(loop, now)
        line = self._line(loop, now)
        blocked: set[int] = set()
        for live in line:
            if live.job.gpus in blocked:
                continue
            where = loop.fit(live)
            if where is None:
                blocked.add(live.job.gpus)
            else:
                loop.start(live, where)
        self._charge(loop, now)

    def _charge(self, loop: Loop, now: int) -> None:
        held = Counter[tuple[str, str]]()
        for there in loop.on:
            for live, gpus in there.items():
                held[live.job.tenant, live.job.user] += gpus
        for who in self.held.keys() | held.keys():
            if held[who] != self.held[who]:
                by = held[who] - self.held[who]
                self.use[who] = self.use.get(who, Usage()).changed(now, by, HALF_LIFE_S)
        self.held = held

    def _line(self, loop: Loop, now: int) -> list[Live]:
        use = {who: usage.at(now, HALF_LIFE_S) for who, usage in self.use.items()}
        waiting = [live for tenant in loop.tenants for live in loop.waiting.of(tenant)]
        users: dict[str, set[str]] = {}
        for tenant, user in (*use, *((live.job.tenant, live.job.user) for live in waiting)):
            users.setdefault(tenant, set()).add(user)
        tenants = tuple(
            Account(
                tenant, loop.gpus(tenant), sum(use.get((tenant, user), 0) for user in mine),
                tuple(Account(f"{tenant}/{user}", 1, use.get((tenant, user), 0)) for user in sorted(mine)),
            )
            for tenant, mine in sorted(users.items())
        )  # fmt: skip
        place = ranks(Account("", children=tenants))
        return sorted(waiting, key=lambda live: (place[f"{live.job.tenant}/{live.job.user}"], live.index))


# --- those that stop jobs


def may_stop(victims: Iterable[Live], over: Mapping[str, int]) -> bool:
    """Return whether each tenant keeps its guarantee if the victims are stopped.

    Args:
        victims: Jobs to stop.
        over: GPUs of each tenant beyond its guarantee, as `surplus` returns them.
    """
    taken = Counter[str]()
    for victim in victims:
        taken[victim.job.tenant] += victim.job.gpus
    return all(gpus <= over[tenant] for tenant, gpus in taken.items())


def surplus(loop: Loop) -> dict[str, int]:
    """Return the GPUs of each tenant beyond its guarantee, without jobs that are being ended."""
    left = Counter(loop.held)
    for there in loop.on:
        for live, gpus in there.items():
            left[live.job.tenant] -= gpus * live.ending
    return {tenant: left[tenant] - loop.gpus(tenant) for tenant in loop.tenants}


def _is_owed(loop: Loop, live: Live) -> bool:
    """Return whether the tenant of a waiting job stays within its guarantee if the job starts."""
    return loop.held[live.job.tenant] + live.job.gpus <= loop.gpus(live.job.tenant)


def _borrowers(there: Iterable[Live], taker: Live, over: Mapping[str, int]) -> list[Live]:
    able = (live for live in there if live.job.preemptible and not live.ending)
    return sorted(live for live in able if live.job.tenant != taker.job.tenant and over[live.job.tenant] > 0)


@dataclass(slots=True)
class Reclaiming(Drf):
    """Base of policies in which jobs within a guarantee go first, and may stop jobs of tenants above theirs."""

    def order(self, loop: Loop, live: Live) -> tuple[float, ...]:
        """Return the sort key of a waiting job: jobs within their tenant's guarantee first, then by share."""
        return (not _is_owed(loop, live), loop.held[live.job.tenant] / loop.gpus(live.job.tenant))


@dataclass(slots=True)
class CountReclaim(Reclaiming):
    """Quotas that only count GPUs, as in Kueue without topology: jobs are admitted first, and placed when they fit.

    A job is admitted if the number of free GPUs suffices. For a job within its tenant's quota, the newest jobs of
    tenants above theirs are stopped until it does. An admitted job counts as usage even while it waits because the
    free GPUs are scattered over nodes.
    """

    admitted: list[Live] = field(default_factory=list)  # admitted jobs that wait for a place

    def decide(self, loop: Loop) -> None:
        """Place admitted jobs, admit more by the number of GPUs, and place those."""
        self._place(loop)
        blocked: set[tuple[str, int]] = set()
        while (live := self._next(loop, blocked)) is not None:
            if self._admits(loop, live):
                loop.waiting.drop(live)
                loop.held[live.job.tenant] += live.job.gpus
                self.admitted.append(live)
            else:
                blocked.add((live.job.tenant, live.job.gpus))
        self._place(loop)

    def _place(self, loop: Loop) -> None:
        for live in tuple(self.admitted):
            where = loop.fit(live)
            if where is not None:
                self._withdraw(loop, live)
                loop.start(live, where)

    def _withdraw(self, loop: Loop, live: Live) -> None:
        self.admitted.remove(live)
        loop.held[live.job.tenant] -= live.job.gpus
        loop.waiting.add(live)

    def _admits(self, loop: Loop, live: Live) -> bool:
        need = live.job.gpus - (loop.scenario.cluster.gpus - loop.held.total())
        if need <= 0:
            return True
        if not _is_owed(loop, live):
            return False
        over, chosen = surplus(loop), list[Live]()
        everybody = {*self.admitted, *(other for there in loop.on for other in there)}
        for victim in sorted(_borrowers(everybody, live, over), key=lambda v: (-v.began_s, -v.index)):
            if need > 0 and may_stop((*chosen, victim), over):
                chosen.append(victim)
                need -= victim.job.gpus
        if need > 0:
            return False
        for victim in [victim for victim in chosen if victim in self.admitted]:
            self._withdraw(loop, victim)
        loop.stop([victim for victim in chosen if victim.where], live)
        return True


def _newest(victims: Sequence[Live]) -> tuple[float, ...]:
    """Return the cost of a choice of victims: fewer jobs are cheaper, then those that started later."""
    return (len(victims), *sorted(-victim.began_s for victim in victims))


@dataclass(slots=True)
class NodeReclaim(Reclaiming):
    """Reclaim that frees a node on which the job then fits, by stopping as few jobs as possible, the newest first."""

    def make_room(self, loop: Loop, live: Live) -> bool:
        """Stop the cheapest borrowers whose end lets all tasks of the job fit; return False if there are none."""
        if not _is_owed(loop, live):
            return False
        over, gone, where = surplus(loop), list[Live](), list[tuple[int, int]]()
        for _ in range(live.tasks):
            place = self._place(loop, live, over, gone, where)
            if place is None:
                return False
            node, victims = place
            gone += victims
            where.append((node, live.size))
        loop.make_room(live, tuple(where), gone)
        return True

    def _place(
        self,
        loop: Loop,
        live: Live,
        over: Mapping[str, int],
        gone: Sequence[Live],
        where: Where | list[tuple[int, int]],
    ) -> tuple[int, tuple[Live, ...]] | None:
        """Return the cheapest node for one more task, with the further victims there; None if there is no such node.

        Args:
            loop: The simulated cluster.
            live: Job that needs room.
            over: GPUs of each tenant beyond its guarantee.
            gone: Victims chosen for its earlier tasks.
            where: Places of its earlier tasks.
        """
        best: tuple[tuple[float, ...], int, tuple[Live, ...]] | None = None
        for node, there in enumerate(loop.on):
            free = loop.free[node] + sum(there.get(victim, 0) for victim in gone)
            need = live.size - free + sum(gpus for at, gpus in where if at == node)
            able = [v for v in _borrowers(there, live, over) if v not in gone]
            for victims in _choices(there, able, need):
                if not may_stop((*gone, *victims), over):
                    continue
                cost = _newest(victims)
                if best is None or (cost, node) < best[:2]:
                    best = (cost, node, victims)
        return best and best[1:]


def _choices(there: Mapping[Live, int], able: Sequence[Live], need: int) -> Iterator[tuple[Live, ...]]:
    """Yield all choices of victims that free enough GPUs of a node; if it has many jobs, only among the newest."""
    if sum(there[live] for live in able) < need:
        return
    latest = sorted(able, key=lambda live: -live.began_s)[: max(MAX_TRIED, need)]
    for count in range(len(latest) + 1):
        for victims in combinations(latest, count):
            if sum(there[victim] for victim in victims) >= need:
                yield victims


# --- Cook


def drus(line: Iterable[Live], share: int) -> dict[Live, float]:
    """Return Cook's cumulative share of each job of a user: GPUs of the jobs up to and with it, by the user's share."""
    total, by_live = 0, dict[Live, float]()
    for live in line:
        total += live.job.gpus
        by_live[live] = total / share
    return by_live


@dataclass(slots=True)
class Cook(Policy):
    """Cook's scheduler and rebalancer, which order jobs by cumulative share: the k-th GPUs of all tenants rank alike.

    In each cycle of the rebalancer, the first waiting jobs may take a host from jobs whose cumulative share is above
    `COOK_SAFE` and by more than `COOK_DIFF` above their own. On a host the jobs with the highest shares are stopped
    until there is room; the host is the one where the lowest share of a victim is highest. Freed GPUs are kept for the
    waiting job, which Cook did not always do.
    """

    next_s: float = 0.0

    def wakes_after_s(self) -> float | None:
        """Return the interval of the rebalancer."""
        return COOK_EVERY_S

    def decide(self, loop: Loop) -> None:
        """Start all waiting jobs that fit, by lowest cumulative share; then rebalance if the interval has passed."""
        blocked: set[int] = set()
        order = self._all(loop)
        for live in sorted(self._waiting(loop), key=lambda live: (order[live], live.index)):
            if live.job.gpus in blocked:
                continue
            where = loop.fit(live)
            if where is None:
                blocked.add(live.job.gpus)
            else:
                loop.start(live, where)
        if loop.now >= self.next_s:
            self.next_s = loop.now + COOK_EVERY_S
            self._rebalance(loop)

    def _waiting(self, loop: Loop) -> list[Live]:
        return [live for tenant in loop.tenants for live in loop.waiting.of(tenant)]

    def _all(self, loop: Loop) -> dict[Live, float]:
        order = dict[Live, float]()
        running: dict[str, set[Live]] = {tenant: set() for tenant in loop.tenants}
        for there in loop.on:
            for live in there:
                running[live.job.tenant].add(live)
        for tenant in loop.tenants:
            began = sorted(running[tenant], key=lambda live: (live.began_s, live.index))
            order |= drus((*began, *loop.waiting.of(tenant)), loop.gpus(tenant))
        return order

    def _rebalance(self, loop: Loop) -> None:
        order, tried = self._all(loop), set[int]()
        line = sorted(self._waiting(loop), key=lambda live: (order[live], live.index))
        for live in line[:COOK_MOST]:
            if live.tasks > 1 or live.job.gpus in tried:
                continue
            place = self._host(loop, live, order)
            if place is None:
                tried.add(live.job.gpus)
            else:
                node, victims = place
                loop.make_room(live, ((node, live.size),), victims)

    def _host(self, loop: Loop, live: Live, order: Mapping[Live, float]) -> tuple[int, list[Live]] | None:
        best: tuple[float, int, list[Live]] | None = None
        for node, there in enumerate(loop.on):
            need, chosen = live.size - loop.free[node], list[Live]()
            for victim in sorted(there, key=lambda v: (-order.get(v, 0.0), v.index)):
                if need <= 0:
                    break
                dru = order.get(victim, 0.0)
                if dru < COOK_SAFE or dru - order[live] <= COOK_DIFF or victim.ending:
                    continue
                if victim.job.preemptible:
                    chosen.append(victim)
                    need -= there[victim]
            if need <= 0 and chosen:
                lowest = min(order[victim] for victim in chosen)
                if best is None or lowest > best[0]:
                    best = (lowest, node, chosen)
        return best and best[1:]


BASELINES: Final[Mapping[str, Callable[[], Policy]]] = {
    "fifo": Fifo,
    "drf": Drf,
    "fairtree": FairTree,
    "cook": Cook,
    "count-reclaim": CountReclaim,
    "node-reclaim": NodeReclaim,
}
