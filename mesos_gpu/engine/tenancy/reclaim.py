"""Who may be stopped for whom in a tree of queues, and what that costs.

A waiting job that has a seat takes GPUs from borrowers of any queue: from none across a fence, from none that is
protected still, and as its queue's `reclaim` says. Within a queue a job of higher priority takes them from lower ones.
Nobody takes them from a job that has a seat in another queue.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.tenancy.seats import Seating
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.tenancy.lost import Ran, cost, least_ms, lost_milli_s, ran
from mesos_gpu.policy.tenancy.tree import Queue, meeting


@dataclass(frozen=True, slots=True)
class Runner:
    """A job that runs, and may be stopped for somebody."""

    job: Job
    victim: Victim
    lost_milli_s: int  # thousandths of cost times seconds
    started_at: float  # endless: not all its tasks run yet


class Reclaim:
    """The rule, at one moment."""

    def __init__(
        self, turn: Turn, seating: Seating, attained: Attained, running: Mapping[JobId, Job]
    ) -> None:
        """Look at each job that runs once.

        Args:
            turn: The step.
            seating: Who has a seat.
            attained: Who gives way in queues that are served by attained service.
            running: The preemptible jobs that run, and are not told to end.
        """
        self._turn, self._seating, self._tree, self._attained = turn, seating, seating.tree, attained
        self._running = running
        self._known: dict[Hashable, dict[JobId, Victim]] = {}
        self.next_at = float("inf")  # when the first is no longer protected from somebody who was refused it

    @cached_property
    def _leaves(self) -> Mapping[str, list[Runner]]:
        leaves: dict[str, list[tuple[Job, Ran]]] = {}
        for job in self._running.values():
            leaves.setdefault(job.spec.queue, []).append((job, self._ran(job)))
        restart_ms = round(self._turn.settings.restart_s * 1000)
        made: dict[str, list[Runner]] = {}
        for leaf, jobs in leaves.items():
            least = least_ms([each for _, each in jobs])
            made[leaf] = [
                Runner(
                    job,
                    Victim(job.id, job.spec.priority, cost(each, least, restart_ms)),
                    lost_milli_s(each, least, restart_ms),
                    job.started_at if job.started_at is not None else float("inf"),
                )
                for job, each in jobs
            ]
        return made

    @cached_property
    def runners(self) -> Mapping[JobId, Runner]:
        """Each of them, by its job."""
        return {each.job.id: each for line in self._leaves.values() for each in line}

    def _ran(self, job: Job) -> Ran:
        seat = job.seat
        milli = seat.milli if seat is not None else self._seating.ground.granted(job)[1]
        return ran(job.started_at, job.checkpoint_at, self._turn.now, milli * job.spec.tasks, job.stopped)

    def kind(self, job: Job) -> Hashable:
        """Jobs of one kind may take the same from the same."""
        seated = self._seating.given.get(job.id)
        pool = seated.pool if seated is not None else None
        return job.spec.queue, pool, job.spec.priority, self._attained.rank(job)

    def victims_of(self, job: Job) -> dict[JobId, Victim]:
        """All that may be stopped for a job that waits."""
        key = self.kind(job)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(job)
        return known

    def _find(self, job: Job) -> dict[JobId, Victim]:
        victims = {each.job.id: each.victim for each in self._below(job)}
        queue = self._tree.queues.get(job.spec.queue)
        if queue is None or self._seating.seat_for(job) is None or queue.resolved.reclaim is Whose.NEVER:
            return victims
        lower = queue.resolved.reclaim is Whose.LOWER
        for leaf, line in self._leaves.items():
            other = self._tree.queues.get(leaf)
            if other is None or self._is_fenced(queue, other):
                continue
            protected_s = self._protected_s(queue, other)
            for each in line:
                if each.job.seat is not None or (lower and each.victim.priority >= job.spec.priority):
                    continue
                if protected_s and self._is_protected(each, protected_s):
                    continue
                victims[each.job.id] = each.victim
        return victims

    def _below(self, job: Job) -> list[Runner]:
        """Jobs of its own queue that it comes before, be they seated or not."""
        below = []
        for each in self._leaves.get(job.spec.queue, ()):
            if self._attained.gives_way(each.job, job):
                # Who stands last goes first, else each who is ended has the next before him ended.
                last = replace(each.victim, priority=-HIGHEST_PRIORITY - 1 - self._attained.level(each.job))
                below.append(replace(each, victim=last))
            elif each.victim.priority < job.spec.priority:
                below.append(each)
        return below

    def _is_fenced(self, queue: Queue, other: Queue) -> bool:
        """Whether a fence is between two queues."""
        return not (self._tree.inside(queue.path, other.fence) and self._tree.inside(other.path, queue.fence))

    def _protected_s(self, queue: Queue, other: Queue) -> float:
        """How long jobs of another queue run before they may be stopped for what one is guaranteed."""
        if queue.path == other.path:
            return other.resolved.min_runtime_s.reclaim_s
        theirs = meeting(queue.path, other.path)[1]
        return self._tree.queues[theirs].resolved.min_runtime_s.reclaim_s

    def _is_protected(self, each: Runner, protected_s: float) -> bool:
        until = each.started_at + protected_s
        if until <= self._turn.now:
            return False
        self.next_at = min(self.next_at, until)
        return True

    def yields(self, job_id: JobId) -> bool:
        """Whether what is kept for a job that waits is not kept from those that may stop others: nobody was stopped for
        it, and it has no seat."""
        job = self._turn.state.jobs[job_id]
        return job.room_made_at is None and not self._seating.is_guaranteed(job)

    def why(self, job: Job, victim: Victim) -> str:
        """What a job is told that makes room: for whom, by which rule, and what it loses."""
        runner = self.runners[victim.job_id]
        loss = f"it loses {_hours(runner.lost_milli_s)} GPU-h of work"
        if runner.job.spec.queue == job.spec.queue and runner.job.spec.priority < job.spec.priority:
            rule = f"whose priority is {job.spec.priority}, not {runner.job.spec.priority}"
        elif runner.job.spec.queue == job.spec.queue and self._attained.gives_way(runner.job, job):
            rule = f"which has had less GPU time in queue {job.spec.queue}"
        else:
            seat = self._seating.seat_for(job)
            owner = job.spec.queue if seat is None else seat.queue
            rule = f"for which queue {owner} is guaranteed GPUs that it had borrowed"
        return f"makes room for job {job.id}, {rule}; {loss}"


def _hours(milli_s: int) -> str:
    return f"{milli_s / 3_600_000:.3g}"
