"""The rule by which running jobs may be ended for others in a tree of queues.

A waiting job with a seat takes GPUs from borrowers of any queue, except across a fence, from jobs that are protected,
and as the `reclaim` of its queue says. Within a queue a job of higher priority takes them from jobs of lower priority.
A job without a seat takes them from borrowers of another queue that has more for what it is due, also afterwards. No
job with a seat is ended for a job of another queue. A job whose GPUs are idle, and whose rules return them under
pressure, is ended for any job inside its fence whose queue may have jobs ended.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.preemption.balance import Balance
from mesos_gpu.engine.preemption.protection import Protection
from mesos_gpu.engine.preemption.running import Running, RunningJob, Victims
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.held import waits_since
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job
from mesos_gpu.model.tenancy import MAX_S
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.room.knapsack import Victim


class Reclaim:
    """Rule at one moment by which running jobs may be ended, and the later moments at which it allows more.

    Args:
        turn: Turn of the engine.
        seating: Guaranteed admission of jobs in the match.
        backlog: Backlog of the match.
        running: Preemptible jobs that run and have no notice.
    """

    def __init__(
        self, turn: Turn, seating: Admissions, backlog: Backlog, running: Mapping[JobId, Job]
    ) -> None:
        self._turn, self.seating, self._tree = turn, seating, seating.tree
        self._attained = backlog.attained
        self.running = Running(turn, seating, running)
        self.balance = Balance(turn, seating, backlog, self.running)
        self.protection = Protection(seating.tree)
        self._known: dict[Hashable, dict[JobId, Victim | None]] = {}
        self._later: dict[Hashable, set[float]] = {}  # moments noted for jobs of each kind
        self._open: dict[tuple[str, float], tuple[dict[JobId, Victim], frozenset[float]]] = {}
        self.moments = set[float]()  # seconds since the epoch from which more jobs may be ended

    @property
    def next_at(self) -> float:
        """First noted moment; infinity without one."""
        return min(self.moments, default=inf)

    def note(self, moment: float) -> None:
        """Note a moment at which plans are to be made again, in seconds since the epoch."""
        self.moments.add(moment)

    # --- victims

    def could_take(self, job: Job) -> bool:
        """Return whether jobs might be ended or moved for a job; True also if only `victims_of` can decide."""
        return not self._tree.is_flat or job.priority > self.running.lowest_priority

    def kind(self, job: Job) -> Hashable:
        """Return a key of a job; jobs with one key have the same possible victims."""
        seat = self.seating.given.get(job.id)
        own = job.spec.queue, job.priority, self._attained.rank(job)
        return (
            (*own, seat.pool) if seat is not None else (*own, job.spec.gpu_model, job.spec.gpu_milli_in_all)
        )

    def victims_of(self, job: Job) -> dict[JobId, Victim]:
        """Return all jobs that may be ended for a waiting job."""
        return self._all_of(job, self.asked_for(job).get)

    def asked_for(self, job: Job) -> Victims:
        """Return the jobs that may be ended for a waiting job, each computed when it is looked up."""
        kind = self.kind(job)
        results = self._known.setdefault(kind, {})
        # Includes moments noted for an earlier job of this kind.
        self.moments |= self._later.setdefault(kind, set())
        return Victims(self.running.jobs, results, partial(self._ask, job, self._later[kind]))

    def takes_from(self, job: Job) -> dict[JobId, Victim]:
        """Return all jobs that may be ended for a running job that is to start again elsewhere."""
        return self._all_of(job, lambda job_id: self._victim(job, self.running.jobs[job_id]))

    def _all_of(self, job: Job, ask: Callable[[JobId], Victim | None]) -> dict[JobId, Victim]:
        """Return all victims for a job; for leaves in which all borrowers qualify they are computed together."""
        leaf, seated = leaf_of(self._tree, job), self.seating.seat_for(job) is not None
        whose = self._tree.queues[leaf].resolved.reclaim
        victims: dict[JobId, Victim] = {}
        for path, jobs in self.running.by_leaf.items():
            protected_s = self.protection.borrowers_s(leaf, path, seated=seated)
            if path != leaf and (protected_s >= MAX_S or not job.spec.gpus):
                continue
            if seated and path != leaf and whose is not Whose.LOWER:
                victims |= self._unprotected(path, protected_s)
            else:
                each = ((other.id, ask(other.id)) for other in jobs if other.id in self.running.jobs)
                victims |= {job_id: victim for job_id, victim in each if victim is not None}
        for job_id in self.running.idle:
            if job_id not in victims and (victim := ask(job_id)) is not None:
                victims[job_id] = victim
        return {job_id: victim for job_id, victim in victims.items() if job_id in self.running.jobs}

    def _ask(self, job: Job, later: set[float], other: Job) -> Victim | None:
        """Return another job as a victim as of `_victim`, and record the noted moments for all jobs of the kind."""
        noted, self.moments = self.moments, set()
        victim = self._victim(job, other)
        later |= self.moments
        self.moments |= noted
        return victim

    def _victim(self, job: Job, other: Job) -> Victim | None:
        """Return another job as a victim of a job; None if it may not be ended for it."""
        leaf, path = leaf_of(self._tree, job), leaf_of(self._tree, other)
        if other.id in self.running.idle:
            forbidden = self.protection.forbids(self._tree.queues[leaf], self._tree.queues[path])
            return self.running.runner(other).victim if job.spec.gpus and not forbidden else None
        if path == leaf and self.comes_before(job, other):
            return self._within_queue(job, self.running.runner(other).victim, other)
        if other.seat is not None or not job.spec.gpus:
            return None
        seated = self.seating.seat_for(job) is not None
        protected_s = self.protection.borrowers_s(leaf, path, seated=seated)
        each = self.running.runner(other)
        if protected_s >= MAX_S or not each.milli:
            return None
        return each.victim if self._gives(job, each, protected_s, seated=seated) else None

    def _gives(self, job: Job, each: RunningJob, protected_s: float, *, seated: bool) -> bool:
        """Return whether a borrower may be ended for a job.

        Args:
            each: Running job without a seat.
            protected_s: Seconds for which the running job is protected from the waiting job.
            seated: Whether the waiting job has a seat.
        """
        lower = self._tree.queues[leaf_of(self._tree, job)].resolved.reclaim is Whose.LOWER
        if lower and each.victim.priority >= job.priority:
            return False
        if self._would_take_back(each, job) or (not seated and not self.balance.allows(job, [each])):
            return False
        return not self._is_protected(each, protected_s)

    def _unprotected(self, leaf: str, protected_s: float) -> Mapping[JobId, Victim]:
        """Return the borrowers of a leaf that may be ended for any job with a seat in another queue, cached."""
        result = self._open.get((leaf, protected_s))
        if result is None:
            noted, self.moments = self.moments, set()
            line = [self.running.runner(job) for job in self.running.by_leaf[leaf] if job.seat is None]
            open_runners = (
                runner for runner in line if runner.milli and not self._is_protected(runner, protected_s)
            )
            result = {runner.job.id: runner.victim for runner in open_runners}, frozenset(self.moments)
            self._open[leaf, protected_s], self.moments = result, noted
        self.moments |= result[1]
        return result[0]

    # --- jobs of one queue

    def comes_before(self, job: Job, each: Job) -> bool:
        """Return whether a job comes before a running job of its own queue, with or without a seat."""
        if each.priority < job.priority or self._attained.gives_way(each, job):
            return True
        if self._attained.orders(job):
            self.note(self._attained.moves_at(each))
        return False

    def _would_take_back(self, each: RunningJob, job: Job) -> bool:
        """Return whether a running job of a waiting job's queue would have that ended in turn, endlessly."""
        if each.leaf != leaf_of(self._tree, job):
            return False
        if self._attained.orders(job):
            return self._attained.rank(each.job) < self._attained.rank(job)
        return each.victim.priority > job.priority

    def _within_queue(self, job: Job, victim: Victim, other: Job) -> Victim:
        """Return a victim of the job's own queue; of jobs with more attained service the last one is ended first.

        Otherwise each ended job would have the one before it ended next.
        """
        if not self._attained.gives_way(other, job):
            return victim
        return replace(victim, priority=-HIGHEST_PRIORITY - 1 - self._attained.level(other))

    # --- protection

    def _is_protected(self, each: RunningJob, protected_s: float) -> bool:
        """Return whether a running job is still protected, and note when the protection ends."""
        until = max(each.started_at + protected_s if protected_s else 0.0, each.job.spared_until)
        if until <= self._turn.now:
            return False
        self.note(until)
        return True

    def protection_of(self, job: Job, victim: Victim) -> tuple[float, str]:
        """Return the end of the protection of a borrower from a job, and what protects it until then, in words.

        The end is in seconds since the epoch, and may have passed.
        """
        if victim.job_id in self.running.idle:
            return 0.0, ""
        each, seated = self.running.runner_of(victim.job_id), self.seating.seat_for(job) is not None
        own_queue, other_queue = (self._tree.queues[path] for path in (leaf_of(self._tree, job), each.leaf))
        protected_s = (
            self.protection.min_runtime_s(own_queue, other_queue, seated=seated)
            if each.job.seat is None
            else 0.0
        )
        if protected_s and each.started_at + protected_s >= each.job.spared_until:
            return each.started_at + protected_s, "its minimum run time"
        return each.job.spared_until, "the time given to it when the queues changed"

    # --- patience

    def has_waited(self, job: Job, chosen: Sequence[Victim]) -> bool:
        """Return whether the wait of a job outweighs the work that a plan loses, by the patience of its queue."""
        until = self.is_patient_until(job, chosen)
        if until <= self._turn.now:
            return True
        self.note(until)
        return False

    def is_patient_until(self, job: Job, chosen: Sequence[Victim]) -> float:
        """Return when the wait of a job outweighs the work that a plan loses, in seconds since the epoch.

        The work at the beginning of the wait counts: work at stake grows as long as the victims run, and the wait
        might never catch up with it.
        """
        patience = self._tree.queues[leaf_of(self._tree, job)].resolved.patience
        since = waits_since(self._turn.state, job)
        if not patience:
            return 0.0
        runners = (
            self.running.runner_of(victim.job_id)
            for victim in chosen
            if victim.job_id not in self.running.idle
        )
        at_stake = sum(self.running.cost_at(runner, since) for runner in runners)
        return since + patience * at_stake / max(self.balance.wanted(job)[1], 1)

    # --- pools

    def serves(self, job: Job, agent_id: AgentId) -> bool:
        """Return whether a node is in the pool of the seat of a job; any node serves a job without a seat."""
        seat, nodes = self.seating.seat_for(job), self._turn.state.cluster.nodes
        return seat is None or self.seating.ground.pool_of(nodes[agent_id]) == seat.pool
