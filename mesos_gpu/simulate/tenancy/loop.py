"""The cluster on which baselines run: nodes, what waits, who runs where, and what a stop costs. Deterministic.

A policy is asked after each event. It starts jobs that wait, and may stop others; whoever is stopped keeps what its
last checkpoint has, and waits again in its old place.
"""

import heapq
from abc import abstractmethod
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mesos_gpu.simulate.tenancy.record import Record, Span, Stopped
from mesos_gpu.simulate.tenancy.scenario import Scenario
from mesos_gpu.simulate.tenancy.trace import TenantJob

Where = tuple[tuple[int, int], ...]  # by task: the node, and its GPUs there


def tasks_of(gpus: int, per_node: int) -> tuple[int, int]:
    """Tasks, all of one size, and GPUs of each: one if a node is large enough, else as few as there can be."""
    tasks = next(tasks for tasks in range(1, gpus + 1) if gpus % tasks == 0 and gpus // tasks <= per_node)
    return tasks, gpus // tasks


@dataclass(slots=True, eq=False)
class Live:
    """A job that has come and not ended."""

    job: TenantJob
    index: int  # its place among all, by submission
    tasks: int
    size: int  # GPUs of each task
    done_s: float = 0.0  # that a stop does not take away
    where: Where = ()
    began_s: float = 0.0
    owed_s: float = 0.0  # of a start that is not the first, before work goes on
    times: int = 0  # stopped
    version: int = 0  # of its latest start or stop
    told_s: float = -1.0  # when it was told to end; below 0: it was not, in this run
    taker: "Live | None" = None  # for whom
    room_due_s: float = -1.0  # somebody ends for it then

    @property
    def ending(self) -> bool:
        """Whether it was told to end."""
        return self.told_s >= 0

    def __lt__(self, other: "Live") -> bool:
        return self.index < other.index


class Policy(Protocol):
    """Whose turn it is, and who makes room."""

    @abstractmethod
    def decide(self, loop: "Loop") -> None:
        """Start and stop what shall be."""

    def wakes_after_s(self) -> float | None:
        """How often it wants to be asked, though nothing happens; None: never."""
        return None


@dataclass(slots=True)
class Waiting:
    """Jobs that wait: each tenant's, by size, first come first."""

    by_tenant: dict[str, dict[int, list[Live]]] = field(default_factory=dict)

    def add(self, live: Live) -> None:
        """Let it wait, at the place of its submission."""
        insort(self.by_tenant[live.job.tenant].setdefault(live.job.gpus, []), live)

    def drop(self, live: Live) -> None:
        """Let it wait no more."""
        self.by_tenant[live.job.tenant][live.job.gpus].remove(live)

    def heads(self, tenant: str) -> Iterator[Live]:
        """The first of each size."""
        return (line[0] for line in self.by_tenant[tenant].values() if line)

    def of(self, tenant: str) -> list[Live]:
        """All of a tenant, first come first."""
        return sorted(live for line in self.by_tenant[tenant].values() for live in line)


class Loop:
    """The cluster of a scenario, run by a policy."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        """Nothing has come yet."""
        cluster = scenario.cluster
        self.scenario, self.costs, self.now = scenario, scenario.costs, 0.0
        self.free = [cluster.gpus_per_node] * cluster.nodes  # kept for whom room is being made: below 0 then
        self.on: list[dict[Live, int]] = [{} for _ in range(cluster.nodes)]  # GPUs of who is there
        self.held: Counter[str] = Counter()  # by tenant, and what is on its way
        self.tenants: Sequence[str] = sorted(scenario.guarantees)
        self.waiting = Waiting({tenant: {} for tenant in self.tenants})
        self._policy = policy
        self._events: list[tuple[float, int, str, Live | None, int]] = []
        self._serial = 0
        self._ended: dict[str, float] = {}
        self._spans: dict[str, list[Span]] = {job.job_id: [] for job in scenario.jobs}
        self._stopped: list[Stopped] = []

    def run(self, name: str) -> Record:
        """All jobs to their end."""
        for index, job in enumerate(self.scenario.jobs):
            tasks, size = tasks_of(job.gpus, self.scenario.cluster.gpus_per_node)
            self._push(job.submitted_s, "comes", Live(job, index, tasks, size))
        wakes = self._policy.wakes_after_s()
        if wakes is not None:
            self._push(wakes, "wakes", None)
        while self._events and len(self._ended) < len(self.scenario.jobs):
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                _, _, what, live, version = heapq.heappop(self._events)
                self._happen(what, live, version)
            self._policy.decide(self)
        return Record(name, self._ended, self._spans, self._stopped)

    # --- what a policy asks for

    def gpus(self, tenant: str) -> int:
        """What it is guaranteed."""
        return self.scenario.gpus(tenant)

    def fit(self, live: Live) -> Where | None:
        """The tightest place; None: there is none."""
        if live.tasks == 1:
            return self._tightest(live.size)
        left = list(self.free)
        where: list[tuple[int, int]] = []
        for _ in range(live.tasks):
            nearest = min(
                ((room, node) for node, room in enumerate(left) if room >= live.size), default=(0, -1)
            )[1]
            if nearest < 0:
                return None
            left[nearest] -= live.size
            where.append((nearest, live.size))
        return tuple(where)

    def _tightest(self, size: int) -> Where | None:
        best, nearest = 1 << 30, -1
        for node, room in enumerate(self.free):
            if size <= room < best:
                best, nearest = room, node
        return ((nearest, size),) if nearest >= 0 else None

    def start(self, live: Live, where: Where) -> None:
        """Start a job that waits."""
        self.waiting.drop(live)
        self._keep(live, where)
        self._begin(live, where)

    def make_room(self, live: Live, where: Where, victims: Sequence[Live]) -> None:
        """Stop some, and start it there once they are gone; what they give back is kept for it."""
        self.waiting.drop(live)
        self._keep(live, where)
        self.stop(victims, live)
        if self.costs.notice_s:
            live.where = where
            self._push(self.now + self.costs.notice_s, "room", live, live.version)
        else:
            self._begin(live, where)

    def stop(self, victims: Iterable[Live], taker: Live) -> None:
        """Tell some to end for another one, without a word of where that one is to start."""
        for victim in victims:
            victim.told_s, victim.taker = self.now, taker
            if self.costs.notice_s:
                self._push(self.now + self.costs.notice_s, "stops", victim, victim.version)
            else:
                self._stop(victim)
        taker.room_due_s = self.now + self.costs.notice_s

    def lost_s(self, live: Live) -> float:
        """What a stop would take from it now, and what its next start does."""
        ran_s = self._ran_s(live)
        return live.done_s + ran_s - self.costs.kept_s(live.done_s, ran_s) + self.costs.restart_s

    # --- events

    def _push(self, at_s: float, what: str, live: Live | None, version: int = 0) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at_s, self._serial, what, live, version))

    def _happen(self, what: str, live: Live | None, version: int) -> None:
        if live is None:
            wakes = self._policy.wakes_after_s()
            assert wakes is not None
            self._push(self.now + wakes, "wakes", None)
        elif what == "comes":
            self.waiting.add(live)
        elif live.version != version:
            return  # it ended, or was stopped, before
        elif what == "ends":
            self._leave(live)
            self._ended[live.job.job_id] = self.now
        elif what == "stops":
            self._stop(live)
        else:
            self._begin(live, live.where)

    def _keep(self, live: Live, where: Where) -> None:
        self.held[live.job.tenant] += live.job.gpus
        for node, gpus in where:
            self.free[node] -= gpus

    def _begin(self, live: Live, where: Where) -> None:
        for node, gpus in where:
            self.on[node][live] = self.on[node].get(live, 0) + gpus
        live.owed_s = self.costs.restart_s if self._spans[live.job.job_id] else 0.0
        live.where, live.began_s, live.version = where, self.now, live.version + 1
        ends_s = self.now + live.owed_s + live.job.lasts_s - live.done_s
        self._push(ends_s, "ends", live, live.version)

    def _leave(self, live: Live) -> None:
        for node, gpus in live.where:
            self.free[node] += gpus
            self.on[node].pop(live, None)
        self.held[live.job.tenant] -= live.job.gpus
        self._spans[live.job.job_id].append(Span(live.began_s, self.now))
        live.where, live.version, live.told_s, live.taker = (), live.version + 1, -1.0, None

    def _ran_s(self, live: Live) -> float:
        return max(0.0, self.now - live.began_s - live.owed_s)

    def _stop(self, live: Live) -> None:
        lost_s, taker = self.lost_s(live), live.taker
        name = taker.job.job_id if taker is not None else None
        self._stopped.append(Stopped(live.job.job_id, live.told_s, name, lost_s, lost_s * live.job.gpus))
        live.done_s = self.costs.kept_s(live.done_s, self._ran_s(live))
        live.times += 1
        self._leave(live)
        self.waiting.add(live)
