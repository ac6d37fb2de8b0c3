"""Deterministic simulation of a cluster of identical nodes that runs a trace of jobs on a virtual clock.

A job gets all its GPUs at once or none: on one node if they fit on one, else on whole nodes and the rest on one
more; a share goes to the shared GPU with the least free part that is large enough. At each event (a job is submitted,
ends, or changes its level) the jobs to run are chosen again in the policy's order. A running job that is chosen stays
in its place if the others can be placed around it. A preempted job keeps its progress (a checkpoint), at the cost that
`Prices` describes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from operator import attrgetter
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.words import counted
from mesos_gpu.policy.tenancy.las import Rank
from mesos_gpu.simulate.orders import Known, Order
from mesos_gpu.simulate.trace import TraceJob

_MIN_PROGRESS: Final = 10  # at least one tenth of the run time is progress, whatever the pauses cost
UNFAIR_RHO: Final = 1.05  # jobs with a higher finish-time fairness count as unfairly served

NO_CARD: Final = -1
#: Placement of a job, by node: node, thousandths of GPUs on it, and the card of a share (NO_CARD for whole GPUs).
Where = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster of `nodes` identical nodes with `gpus_per_node` GPUs each."""

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs of rescheduling for a job, as run time without progress.

    The published figures of Muri's artifact charge `pause_ms` too, with the time that a start takes (4 to 46 s by
    model); they may only be compared with figures that are charged like this.

    Attributes:
        restart_ms: Cost of each start but the first, so of each preemption and each move.
        pause_ms: Cost of each event while the job runs, even if it is not moved; at most nine tenths of the time since
            the previous event, so that the job ends in the end.
    """

    restart_ms: int = 0
    pause_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """State of the cluster after an event.

    Attributes:
        now_ms: Time since the start of the trace.
        placed: Placement of each running job, by job id.
        waiting: Number of jobs that wait.
        ended: Number of jobs that have ended.
    """

    now_ms: int
    placed: Mapping[str, Where]
    waiting: int
    ended: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a simulation.

    Attributes:
        ended_ms: End of each job by job id, from the start of the trace.
        preemptions: Number of preemptions of running jobs.
        moves: Number of moves of running jobs to another place.
        events: Number of scheduling events.
    """

    ended_ms: Mapping[str, int]
    preemptions: int
    moves: int
    events: int


@dataclass(slots=True, eq=False)
class _Live:
    """A job that was submitted and has not ended."""

    job: TraceJob
    known: Known
    left_ms: int  # work that is not done yet
    waits_since_ms: int
    rank: tuple[Rank, int, int, str] = ((), 0, 0, "")
    where: Where | None = None  # None while it waits
    owed_ms: int = 0  # rest of the cost of its latest start, before work goes on
    started: bool = False  # whether it has ever run


def simulate(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    order: Order,
    prices: Prices,
    told: Callable[[Tick], None] | None = None,
) -> Outcome:
    """Run all jobs of a trace until they end.

    Args:
        jobs: Jobs of the trace, in any order.
        cluster: Cluster that runs them.
        order: Scheduling policy.
        prices: Costs of preemptions, moves and pauses.
        told: Callback after each event.

    Raises:
        BadConfiguration: A job asks for more GPUs than the cluster has.
    """
    for job in jobs:
        if job.gpus > cluster.gpus:
            raise BadConfiguration(
                f"job {job.job_id} asks for {counted(job.gpus, 'GPU')}, and the cluster has {cluster.gpus}",
                remedy="give --nodes or --gpus-per-node that hold it, or take it out of the trace",
            )
    run = _Run(jobs, cluster, order, prices)
    while run.step():
        if told is not None:
            told(run.tick())
    return Outcome(run.ended_ms, run.preemptions, run.moves, run.events)


@dataclass(slots=True)
class _Run:
    """State of a simulation, which `step` advances by one event."""

    jobs: Sequence[TraceJob]
    cluster: Cluster
    order: Order
    prices: Prices
    ended_ms: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    moves: int = 0
    events: int = 0
    _now: int = 0
    _coming: list[TraceJob] = field(default_factory=list)
    _line: list[_Live] = field(default_factory=list)  # submitted jobs that have not ended, by rank
    _placed: list[_Live] = field(default_factory=list)
    _lifts: list[tuple[int, str, _Live]] = field(default_factory=list)

    def __post_init__(self) -> None:
        def came(job: TraceJob) -> tuple[int, str]:
            return (job.submitted_ms, job.job_id)

        self._coming = sorted(self.jobs, key=came, reverse=True)

    def step(self) -> bool:
        """Advance to the next event and place jobs again; return False if all jobs have ended."""
        if not (self._coming or self._line):
            return False
        self._advance(self._next_ms())
        self._end()
        self._come()
        self._lift()
        self._fill()
        self.events += 1
        return True

    def tick(self) -> Tick:
        """Return the state of the cluster at this moment."""
        placed = {live.job.job_id: live.where for live in self._placed if live.where is not None}
        return Tick(self._now, placed, len(self._line) - len(placed), len(self.ended_ms))

    def _next_ms(self) -> int:
        times = [self._now + live.owed_ms + live.left_ms for live in self._placed]
        for live in self._placed:
            change = self.order.changes_in_ms(live.known)
            if change is not None:
                times.append(self._now + live.owed_ms + change)
        if self._coming:
            times.append(self._coming[-1].submitted_ms)
        while self._lifts and not self._still_waits(*self._lifts[0]):
            heappop(self._lifts)
        if self._lifts:
            times.append(self._lifts[0][0])
        return min(times)

    def _advance(self, to_ms: int) -> None:
        span = to_ms - self._now
        self._now = to_ms
        for live in self._placed:
            paid = min(live.owed_ms, span)
            live.owed_ms -= paid
            ran = span - paid
            # Without the cost of the start: a time slice shorter than that cost would otherwise pass without progress.
            live.known.served_ms += ran
            ends = ran == live.left_ms and live.owed_ms == 0
            live.left_ms -= ran if ends else max(ran - self.prices.pause_ms, ceil(ran / _MIN_PROGRESS))

    def _end(self) -> None:
        ended = {live for live in self._placed if live.left_ms == 0}
        if ended:
            self.ended_ms.update((live.job.job_id, self._now) for live in ended)
            self._line = [live for live in self._line if live not in ended]
            self._placed = [live for live in self._placed if live not in ended]

    def _come(self) -> None:
        while self._coming and self._coming[-1].submitted_ms == self._now:
            job = self._coming.pop()
            live = _Live(job, Known(job.milli, job.submitted_ms), job.lasts_ms, self._now)
            self._rank(live)
            self._line.append(live)
            self._await(live)

    def _lift(self) -> None:
        while self._lifts and self._lifts[0][0] <= self._now:
            due = heappop(self._lifts)
            if self._still_waits(*due):
                live = due[2]
                live.known.served_ms, live.known.lifted = 0, True
                self._rank(live)

    def _await(self, live: _Live) -> None:
        live.waits_since_ms = self._now
        if self.order.lift_after_ms is not None:
            heappush(self._lifts, (self._now + self.order.lift_after_ms, live.job.job_id, live))

    def _still_waits(self, at_ms: int, job_id: str, live: _Live) -> bool:
        assert self.order.lift_after_ms is not None
        ended = job_id in self.ended_ms
        return live.where is None and not ended and live.waits_since_ms == at_ms - self.order.lift_after_ms

    def _rank(self, live: _Live) -> None:
        left_ms = live.left_ms if self.order.knows_durations else 0
        live.rank = (
            self.order.rank(live.known, left_ms),
            live.job.submitted_ms,
            live.job.milli,
            live.job.job_id,
        )

    def _fill(self) -> None:
        for live in self._placed:
            self._rank(live)
        self._line.sort(key=attrgetter("rank"))
        chosen = self._choose()
        places = chosen if not self.order.preempts else _settle(chosen, self.cluster)
        self._refill(places)
        for live in self._placed:
            if live not in places:
                live.where = None
                self.preemptions += 1
                self._await(live)
        for live, where in places.items():
            self._put(live, where)
        self._placed = list(places)

    def _choose(self) -> dict[_Live, Where]:
        """Return the jobs that shall run now, each with a place; all places fit beside each other."""
        places: dict[_Live, Where] = {}
        free = _Free(self.cluster)
        if not self.order.preempts:
            places = {live: live.where for live in self._placed if live.where is not None}
            for where in places.values():
                free.take(where)
        for live in self._line:
            if live in places:
                continue
            place = free.find(live.job)
            if place is not None:
                free.take(place)
                places[live] = place
            elif self.order.strict:
                break
            if free.milli == 0:
                break
        return places

    def _refill(self, places: dict[_Live, Where]) -> None:
        """Add waiting jobs to `places` that fit after `_settle`, which may have packed the chosen jobs more closely."""
        if self.order.strict:
            return
        free = _Free(self.cluster)
        for where in places.values():
            free.take(where)
        for live in self._line:
            if free.milli == 0:
                return
            if live not in places and (place := free.find(live.job)) is not None:
                free.take(place)
                places[live] = place

    def _put(self, live: _Live, where: Where) -> None:
        if live.where == where:
            return
        if live.where is not None:
            self.moves += 1
        if live.started:
            live.owed_ms = self.prices.restart_ms
        live.where, live.started = where, True


class _Free:
    """Free GPUs and free parts of shared GPUs of each node."""

    def __init__(self, cluster: Cluster) -> None:
        self.milli = cluster.gpus * WHOLE
        self._per_node = cluster.gpus_per_node
        # Number of GPUs of each node that are wholly free.
        self._nodes = [cluster.gpus_per_node] * cluster.nodes
        self._shared: dict[tuple[int, int], int] = {}  # free thousandths of shared GPUs, by node and card
        # Smallest request, in thousandths, that is known to fit nowhere; by whether it is a share.
        self._none_from = {False: self.milli + 1, True: WHOLE}

    def find(self, job: TraceJob) -> Where | None:
        """Return the place for a job that leaves the least free GPUs on its node; None if it fits nowhere."""
        is_share = job.gpu_milli < WHOLE
        if job.milli >= self._none_from[is_share]:
            return None
        where = self._find_part(job.milli) if is_share else self._find(job.gpus)
        if where is None:
            self._none_from[is_share] = job.milli
        return where

    def fits(self, where: Where) -> bool:
        """Return whether a given place is free."""
        return all(
            self._nodes[node] * WHOLE >= milli
            if (node, card) not in self._shared
            else self._shared[node, card] >= milli
            for node, milli, card in where
        )

    def take(self, where: Where) -> None:
        """Occupy a place that `find` returned or that `fits` confirmed."""
        for node, milli, card in where:
            self.milli -= milli
            if card == NO_CARD:
                self._nodes[node] -= milli // WHOLE
            else:
                if (node, card) not in self._shared:
                    self._nodes[node] -= 1
                self._shared[node, card] = self._shared.get((node, card), WHOLE) - milli
                assert self._shared[node, card] >= 0
            assert self._nodes[node] >= 0

    def _find_part(self, milli: int) -> Where | None:
        shared = [(free, at) for at, free in self._shared.items() if free >= milli]
        if shared:
            node, card = min(shared)[1]
            return ((node, milli, card),)
        whole = [(free, node) for node, free in enumerate(self._nodes) if free]
        if not whole:
            return None
        node = min(whole)[1]
        card = next(card for card in range(self._per_node) if (node, card) not in self._shared)
        return ((node, milli, card),)

    def _find(self, gpus: int) -> Where | None:
        whole, rest = divmod(gpus, self._per_node)
        empty = [node for node, free in enumerate(self._nodes) if free == self._per_node] if whole else []
        if len(empty) < whole:
            return None
        taken = empty[:whole]
        where = [(node, self._per_node * WHOLE, NO_CARD) for node in taken]
        if rest:
            fitting = [
                (free, node) for node, free in enumerate(self._nodes) if free >= rest and node not in taken
            ]
            if not fitting:
                return None
            where.append((min(fitting)[1], rest * WHOLE, NO_CARD))
        return tuple(sorted(where))


def _settle(chosen: Mapping[_Live, Where], cluster: Cluster) -> dict[_Live, Where]:
    """Return places for all chosen jobs with few moves.

    Running jobs stay in place if the others fit around them; else the largest jobs are placed first, and smaller ones
    may move; else the places are those of `chosen`.
    """
    staying = sorted(chosen, key=lambda live: (live.where is None, -live.job.milli, live.rank))
    largest = sorted(chosen, key=lambda live: (-live.job.milli, live.where is None, live.rank))
    return _pack(staying, cluster) or _pack(largest, cluster) or dict(chosen)


def _pack(lives: Iterable[_Live], cluster: Cluster) -> dict[_Live, Where] | None:
    """Place jobs one after the other, each in its present place if that is free; return None if one does not fit."""
    free = _Free(cluster)
    places: dict[_Live, Where] = {}
    for live in lives:
        where = live.where if live.where is not None and free.fits(live.where) else free.find(live.job)
        if where is None:
            return None
        free.take(where)
        places[live] = where
    return places


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by which policies are compared.

    The job completion time (JCT) is the time from a job's submission to its end.

    Attributes:
        makespan_s: Time from the first submission to the last end.
        gpu_utilisation_pct: GPU time in which jobs made progress, in % of all GPU time in the makespan.
        worst_rho: Highest finish-time fairness (rho) of a job. Rho is the JCT divided by the job's duration times the
            number of jobs per GPU (at least 1): the time that the job takes on an equal part of the cluster if all
            jobs of the trace are there all the time (Shockwave's static contention factor). It is low for long traces.
        unfair_pct: Jobs with a rho above `UNFAIR_RHO`, in %.
    """

    avg_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    makespan_s: float
    gpu_utilisation_pct: float
    worst_rho: float
    unfair_pct: float


def figures(jobs: Sequence[TraceJob], cluster: Cluster, outcome: Outcome) -> Figures:
    """Return the figures of a simulation; percentiles are by nearest rank."""
    times = sorted(outcome.ended_ms[job.job_id] - job.submitted_ms for job in jobs)
    makespan = max(outcome.ended_ms.values()) - min(job.submitted_ms for job in jobs)
    work = sum(job.milli * job.lasts_ms for job in jobs)
    contention = max(1.0, len(jobs) / cluster.gpus)
    rhos = [(outcome.ended_ms[job.job_id] - job.submitted_ms) / (job.lasts_ms * contention) for job in jobs]

    def percentile(share: float) -> float:
        return times[ceil(share * len(times)) - 1] / 1000

    return Figures(
        avg_jct_s=sum(times) / len(times) / 1000,
        p50_jct_s=percentile(0.5),
        p99_jct_s=percentile(0.99),
        makespan_s=makespan / 1000,
        gpu_utilisation_pct=100 * work / (cluster.gpus * WHOLE * makespan),
        worst_rho=max(rhos),
        unfair_pct=100 * sum(rho > UNFAIR_RHO for rho in rhos) / len(rhos),
    )
