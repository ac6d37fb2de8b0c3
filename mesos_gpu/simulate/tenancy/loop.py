"""Simulated cluster for the baseline policies: nodes, waiting and running jobs, and costs of stops. Deterministic.

The policy decides after each event: it starts waiting jobs, and may stop others. A stopped job keeps the progress of
its last checkpoint, and waits again in its old place.
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
    """Split a job into the fewest tasks of equal size that fit on a node; return their number and the GPUs of each."""
    tasks = next(tasks for tasks in range(1, gpus + 1) if gpus % tasks == 0 and gpus // tasks <= per_node)
    return tasks, gpus // tasks


@dataclass(slots=True, eq=False)
class Live:
    """Job that was submitted and has not ended, as the simulation sees it."""

    job: TenantJob
    index: int  # place among all jobs by submission
    tasks: int
    size: int  # GPUs of each task
    done_s: float = 0.0  # progress that a stop does not lose
    where: Where = ()
    began_s: float = 0.0
    owed_s: float = 0.0  # restart time before work continues; 0 at the first start
    times: int = 0  # number of stops
    version: int = 0  # grows with each start and stop, so that events of an earlier run are ignored
    told_s: float = -1.0  # time at which it was told to end in this run; negative if it was not
    taker: "Live | None" = None  # job for which it ends
    room_due_s: float = -1.0  # time at which jobs that end for it are gone; negative if none were told to end

    @property
    def ending(self) -> bool:
        """Whether the job was told to end."""
        return self.told_s >= 0

    def __lt__(self, other: "Live") -> bool:
        return self.index < other.index


class Policy(Protocol):
    """Policy that decides which jobs start and which are stopped for them."""

    @abstractmethod
    def decide(self, loop: "Loop") -> None:
        """Start and stop jobs after an event."""

    def wakes_after_s(self) -> float | None:
        """Return the interval of additional decisions without an event; None for none."""
        return None


@dataclass(slots=True)
class Waiting:
    """Waiting jobs by tenant and size, in order of submission."""

    by_tenant: dict[str, dict[int, list[Live]]] = field(default_factory=dict)

    def add(self, live: Live) -> None:
        """Add a job, at its place by submission."""
        insort(self.by_tenant[live.job.tenant].setdefault(live.job.gpus, []), live)

    def drop(self, live: Live) -> None:
        """Remove a job."""
        self.by_tenant[live.job.tenant][live.job.gpus].remove(live)

    def heads(self, tenant: str) -> Iterator[Live]:
        """Yield the first waiting job of each size of a tenant."""
        return (line[0] for line in self.by_tenant[tenant].values() if line)

    def of(self, tenant: str) -> list[Live]:
        """Return the waiting jobs of a tenant in order of submission."""
        return sorted(live for line in self.by_tenant[tenant].values() for live in line)


class Loop:
    """Cluster of a scenario, run by a policy.

    Args:
        scenario: Jobs, nodes, guarantees and costs.
        policy: Policy that decides after each event.
    """

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        cluster = scenario.cluster
        self.scenario, self.costs, self.now = scenario, scenario.costs, 0.0
        self.free = [
            cluster.gpus_per_node
        ] * cluster.nodes  # negative while room is kept for a job before its victims are gone
        self.on: list[dict[Live, int]] = [{} for _ in range(cluster.nodes)]  # GPUs of the jobs on each node
        self.held: Counter[str] = Counter()  # by tenant, with GPUs that are kept for its jobs
        self.tenants: Sequence[str] = sorted(scenario.guarantees)
        self.waiting = Waiting({tenant: {} for tenant in self.tenants})
        self._policy = policy
        self._events: list[tuple[float, int, str, Live | None, int]] = []
        self._serial = 0
        self._ended: dict[str, float] = {}
        self._spans: dict[str, list[Span]] = {job.job_id: [] for job in scenario.jobs}
        self._stopped: list[Stopped] = []

    def run(self, name: str) -> Record:
        """Run all jobs to their end, and return the record."""
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

    # --- calls of policies

    def gpus(self, tenant: str) -> int:
        """Return the number of GPUs that a tenant is guaranteed."""
        return self.scenario.gpus(tenant)

    def fit(self, live: Live) -> Where | None:
        """Return the place for a job that leaves the least room on its nodes; None if the job does not fit."""
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
        """Stop victims, and start a waiting job at a place once they are gone; their room is kept for it."""
        self.waiting.drop(live)
        self._keep(live, where)
        self.stop(victims, live)
        if self.costs.notice_s:
            live.where = where
            self._push(self.now + self.costs.notice_s, "room", live, live.version)
        else:
            self._begin(live, where)

    def stop(self, victims: Iterable[Live], taker: Live) -> None:
        """Tell victims to end for a job, without fixing where that job is to start."""
        for victim in victims:
            victim.told_s, victim.taker = self.now, taker
            if self.costs.notice_s:
                self._push(self.now + self.costs.notice_s, "stops", victim, victim.version)
            else:
                self._stop(victim)
        taker.room_due_s = self.now + self.costs.notice_s

    def lost_s(self, live: Live) -> float:
        """Return the seconds that a stop would cost a job now: work since the last checkpoint and the next start."""
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
