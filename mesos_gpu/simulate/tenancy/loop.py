"""Deterministic cluster for the baselines: nodes, waiting and running jobs, and costs of stops.

The policy decides after each event. It starts waiting jobs, and may stop others; a stopped job keeps the work of its
last checkpoint, and waits again in its old position.
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

Where = tuple[tuple[int, int], ...]  # for each task: its node, and its GPUs there


def tasks_of(gpus: int, per_node: int) -> tuple[int, int]:
    """Return the number of equal tasks of a job, as few as the size of nodes allows, and the GPUs of each."""
    tasks = next(tasks for tasks in range(1, gpus + 1) if gpus % tasks == 0 and gpus // tasks <= per_node)
    return tasks, gpus // tasks


@dataclass(slots=True, eq=False)
class Live:
    """A job that was submitted and has not ended."""

    job: TenantJob
    index: int  # position among all jobs, by submission
    tasks: int
    size: int  # GPUs of each task
    done_s: float = 0.0  # work that a checkpoint has kept
    where: Where = ()
    began_s: float = 0.0
    owed_s: float = 0.0  # cost of a restart, before work goes on
    times: int = 0  # number of stops
    version: int = 0  # grows with each start and stop, so that outdated events are ignored
    told_s: float = -1.0  # time of the notice to end; below 0 without one in this run
    taker: "Live | None" = None  # job that gets its GPUs
    room_due_s: float = -1.0  # end of the victims that make room for it

    @property
    def ending(self) -> bool:
        """Whether it has notice to end."""
        return self.told_s >= 0

    def __lt__(self, other: "Live") -> bool:
        return self.index < other.index


class Policy(Protocol):
    """Policy that decides which jobs start and which make room."""

    @abstractmethod
    def decide(self, loop: "Loop") -> None:
        """Start and stop jobs, after an event."""

    def wakes_after_s(self) -> float | None:
        """Return the interval of additional decisions, in seconds; None if only events need decisions."""
        return None


@dataclass(slots=True)
class Waiting:
    """Waiting jobs by tenant and number of GPUs, in the order of submission."""

    by_tenant: dict[str, dict[int, list[Live]]] = field(default_factory=dict)

    def add(self, live: Live) -> None:
        """Add a waiting job, in the order of submission."""
        insort(self.by_tenant[live.job.tenant].setdefault(live.job.gpus, []), live)

    def drop(self, live: Live) -> None:
        """Remove a job."""
        self.by_tenant[live.job.tenant][live.job.gpus].remove(live)

    def heads(self, tenant: str) -> Iterator[Live]:
        """Return the first job of each size of a tenant."""
        return (line[0] for line in self.by_tenant[tenant].values() if line)

    def of(self, tenant: str) -> list[Live]:
        """Return all waiting jobs of a tenant, in the order of submission."""
        return sorted(live for line in self.by_tenant[tenant].values() for live in line)


class Loop:
    """Simulated cluster of a scenario, scheduled by a policy."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        cluster = scenario.cluster
        self.scenario, self.costs, self.now = scenario, scenario.costs, 0.0
        # Free GPUs by node; below 0 while a place is kept for a job whose victims still run.
        self.free = [cluster.gpus_per_node] * cluster.nodes
        # GPUs of each running job, by node.
        self.on: list[dict[Live, int]] = [{} for _ in range(cluster.nodes)]
        self.held: Counter[str] = Counter()  # GPUs by tenant, with those of jobs for which room is made
        self.tenants: Sequence[str] = sorted(scenario.guarantees)
        self.waiting = Waiting({tenant: {} for tenant in self.tenants})
        self._policy = policy
        self._events: list[tuple[float, int, str, Live | None, int]] = []
        self._serial = 0
        self._ended: dict[str, float] = {}
        self._spans: dict[str, list[Span]] = {job.job_id: [] for job in scenario.jobs}
        self._stopped: list[Stopped] = []

    def run(self, name: str) -> Record:
        """Run all jobs until they end; `name` is the policy's name in the record."""
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

    # --- called by policies

    def gpus(self, tenant: str) -> int:
        """Return the GPUs that a tenant is guaranteed."""
        return self.scenario.gpus(tenant)

    def fit(self, live: Live) -> Where | None:
        """Return nodes for a job, each with the fewest free GPUs that suffice; None if it does not fit."""
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
        """Stop victims, and start a job in their place once they have ended; freed GPUs are kept for it."""
        self.waiting.drop(live)
        self._keep(live, where)
        self.stop(victims, live)
        if self.costs.notice_s:
            live.where = where
            self._push(self.now + self.costs.notice_s, "room", live, live.version)
        else:
            self._begin(live, where)

    def stop(self, victims: Iterable[Live], taker: Live) -> None:
        """Give victims notice to end for another job, without a decision where that job starts."""
        for victim in victims:
            victim.told_s, victim.taker = self.now, taker
            if self.costs.notice_s:
                self._push(self.now + self.costs.notice_s, "stops", victim, victim.version)
            else:
                self._stop(victim)
        taker.room_due_s = self.now + self.costs.notice_s

    def lost_s(self, live: Live) -> float:
        """Return the work that a stop would lose now, plus the cost of the next start, in seconds."""
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
