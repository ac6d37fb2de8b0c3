"""List of reasons that block jobs during one match, for placement, `why`, preemption and reclaim.

The entries of the list are in `mesos_gpu.engine.queue.reasons`.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import chain

from mesos_gpu.engine.charges import cells_now
from mesos_gpu.engine.indexes.leaves import ruled_as
from mesos_gpu.engine.queue.reasons import (
    BESIDE_BOOKED,
    IN_ALL_POOLS,
    IN_ONE_POOL,
    Case,
    Facts,
    NotLent,
    PoolLimit,
)
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.policy.admission.limits import Wait, could_be_seated
from mesos_gpu.policy.admission.reasons import Reason
from mesos_gpu.policy.capacity.node import Reservation, Spare
from mesos_gpu.policy.room.preemption import Shortage
from mesos_gpu.policy.tenancy.tree import Bound


class AdmissionLimits:
    """Admission limits: what blocks jobs, valid as long as holdings change only by what the match takes.

    Args:
        facts: Facts of the match, kept up to date by its ledger.

    Attributes:
        lending: Lend limits of queues.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts, self.lending = facts, facts.lending
        self._state, self._held, self._kept, self._tree = facts.state, facts.held, facts.kept, facts.tree
        self._of_all = [kind for kind in IN_ALL_POOLS if kind.concerns(facts.tree)]
        self._of_one = [kind for kind in IN_ONE_POOL if kind.concerns(facts.tree)]
        self._known: dict[Hashable, Wait | None] = {}
        self._known_at: tuple[int, Sequence[Reservation]] = -1, ()
        self._rules: dict[Hashable, Wait | None] = {}
        self._rules_at = -1

    # --- the list

    def _in_all(self, job: Job) -> Iterator[Reason[Case]]:
        """Yield the reasons that block a job in all pools."""
        case = Case(self._facts, job)
        return chain.from_iterable(kind.decide(case) for kind in self._of_all)

    def _beside_booked(self, job: Job) -> Iterator[Reason[Case]]:
        """Yield the reasons that block a job everywhere but on its booking."""
        case = Case(self._facts, job)
        return chain.from_iterable(kind.decide(case) for kind in BESIDE_BOOKED)

    def _in_one(self, job: Job, pool: str, kept: Sequence[Reservation]) -> Iterator[Reason[Case]]:
        """Yield the reasons that block a job in a pool, given some reservations."""
        case = Case(self._facts, job, pool, kept)
        return chain.from_iterable(kind.decide(case) for kind in self._of_one)

    # --- what blocks a job now

    def over_limit(self, job: Job) -> bool:
        """Return whether any reason blocks a job."""
        return self.wait_of(job) is not None

    def wait_of(self, job: Job) -> Wait | None:
        """Return why a job may not start even with free GPUs; None if no reason blocks it."""
        if self._tree.is_flat and job.spec.booking is None and not self.bounds(job):
            return None
        revision, last = self._known_at
        if revision != self._held.revision or last is not self._kept.every:
            self._known.clear()
            self._known_at = self._held.revision, self._kept.every
        key = self._kind(job)
        if key not in self._known:
            self._known[key] = self._wait_in_all(job, key) or self._wait_of_pools(job)
        return self._known[key]

    def rule_against(self, job: Job) -> Wait | None:
        """Return why a job may not start that no reservation could help; None if a reservation could."""
        if self._tree.is_flat and job.spec.booking is None:
            return None
        if wait := self._wait_in_all(job, self._kind(job)):
            return wait
        beside = next(self._beside_booked(job), None)
        return None if beside is None else beside.wait()

    def _wait_in_all(self, job: Job, key: Hashable) -> Wait | None:
        """Return the first reason that blocks a job in all pools.

        Args:
            job: Job that waits.
            key: Key of the job, as of `_kind`.
        """
        if self._rules_at != self._held.revision:
            self._rules.clear()
            self._rules_at = self._held.revision
        if key not in self._rules:
            reason = next(self._in_all(job), None)
            self._rules[key] = None if reason is None else reason.wait()
        return self._rules[key]

    def _wait_of_pools(self, job: Job) -> Wait | None:
        """Return why limits leave no room in any pool that a job may use; None if one has room."""
        if not job.spec.gpu_milli_in_all:
            return None
        waits: list[Wait] = []
        for pool in sorted(self._held.pools_of(job)):
            wait = self._wait_in(job, pool)
            if wait is None:
                return None
            waits.append(wait)
        if len(waits) == 1:
            return waits[0]
        return Wait(Stage.POOL, "; ".join(wait.words for wait in waits))

    def _wait_in(self, job: Job, pool: str) -> Wait | None:
        """Return why limits of a pool leave no room for a job; None if they do."""
        reason = next(self._in_one(job, pool, self._kept.every), None)
        return None if reason is None else reason.wait()

    def _kind(self, job: Job) -> Hashable:
        """Return a key of a job; jobs with one key are blocked by the same reasons."""
        # A job with a reservation may start where other jobs of its kind may not.
        own = job.id if job.room_made_at is not None or job.id in self._kept.jobs else None
        seated = job.id in self._state.quota.seats_given
        return ruled_as(job), job.spec.booking, seated, own, self._held.pools.count(job)

    def wait_of_lenders(self, job: Job, pool: str, cost: int) -> Wait | None:
        """Return why lend limits leave no room for a job to hold more of a pool; None if they do.

        Args:
            job: Job that waits, or that runs and grows.
            pool: Name of the pool.
            cost: Thousandths of cost that the job takes beyond what it holds.
        """
        reason = next(NotLent.of_growth(self._facts, job, pool, cost), None)
        return None if reason is None else reason.wait()

    # --- pools

    def open_pools(self, job: Job) -> frozenset[str] | None:
        """Return the pools whose limits leave room for all of a job; None if there are no pools."""
        if not self._tree.document.pools:
            return None
        pools = self._held.pools_of(job)
        if not job.spec.gpus:
            return pools
        return frozenset(pool for pool in pools if self._wait_in(job, pool) is None)

    def pools_of_booked(self, job: Job) -> frozenset[str]:
        """Return the pools in which a job may use its booking.

        They are within limits, but need no seat, and include pools that the job may otherwise use only later.
        """
        waits = {pool: self._wait_in(job, pool) for pool in self._held.pools.every(job)}
        return frozenset(pool for pool, w in waits.items() if w is None or w.stage is Stage.GUARANTEE)

    def may_be_seated(self, job: Job, pool: str | None = None) -> bool:
        """Return whether a job could start if it had a seat, in any pool or in that one."""
        if job.spec.booking is not None:
            return False  # an active booking is not part of a guarantee
        wait = self.wait_of(job)
        if wait is not None and wait.stage not in (Stage.GUARANTEE, Stage.POOL):
            return False
        if not self._tree.document.pools:
            return True
        pools = self._held.pools_of(job) if pool is None else self._held.pools_of(job) & {pool}
        waits = (self._wait_in(job, pool_name) for pool_name in pools)
        return any(pool_wait is None or pool_wait.stage is Stage.GUARANTEE for pool_wait in waits)

    # --- what would have to end

    def shortages(self, job: Job) -> dict[str, list[Shortage]]:
        """Return by how much limits block a job in each pool, and which jobs would free that by their ends.

        Args:
            job: Job that waits.

        Returns:
            Shortages by pool that the job may use and that limits close to it; without open pools, and without pools
            that no end would open.
        """
        if self._tree.is_flat and job.spec.booking is None and not self.bounds(job):
            return {}
        everywhere = [*self._in_all(job), *self._beside_booked(job)]
        by_pool: dict[str, list[Shortage]] = {}
        for pool in sorted(self._held.pools_of(job)):
            lacks = [reason.lack() for reason in (*everywhere, *self._in_one(job, pool, self._kept.every))]
            reducible = [lack for lack in lacks if lack is not None]
            if reducible and len(reducible) == len(lacks):
                by_pool[pool] = [Shortage(lack.amount, self._held.holdings(lack)) for lack in reducible]
        return by_pool

    def has_room_without(self, job: Job, ended: Collection[JobId]) -> bool:
        """Return whether all limits let a job without a seat start in the pools of some jobs once these have ended."""
        pools = self._held.pools_of_jobs(ended)
        reasons = chain(self._in_all(job), *(self._in_one(job, pool, ()) for pool in pools))
        lacks = [(reason.stage, reason.lack()) for reason in reasons]
        return pools <= self._held.pools_of(job) and all(
            lack is not None
            and sum(self._held.holdings(lack).get(job_id, 0) for job_id in ended) >= lack.amount
            for stage, lack in lacks
            if stage is not Stage.GUARANTEE or lack is not None
        )

    # --- limits

    def bounds(self, job: Job) -> Sequence[Bound]:
        """Return the GPU limits of the queue of a job and of the queues above it."""
        return self._facts.bounds(job)

    def bounds_in(self, job: Job, pool: str) -> list[Bound]:
        """Return the GPU limits for a job in a pool, with what other queues lend as a limit of all queues."""
        bounds, of_all = self._facts.bounds_of(job, pool), self.lending.bound(job, pool)
        return bounds if of_all is None else [*bounds, of_all]

    def beyond(self, job: Job) -> str:
        """Return which limit never lets a job start, in words; "" without such a limit, or if other hours change it."""
        if self._tree.has_hours(self._held.queue_of(job)):
            return ""
        whys = [self._beyond_in(job, pool) for pool in sorted(self._held.pools.every(job))]
        return whys[0] if whys and all(whys) else ""

    def may_hold(self, job: Job) -> list[str]:
        """Return the pools that a job may use now and whose limits would allow it if nothing were held."""
        pools = self._held.pools_of(job)
        return [p for p in pools if not self._beyond_in(job, p) and self.lending.ever_leaves_room(job, p)]

    def _beyond_in(self, job: Job, pool: str) -> str:
        """Return which limit of a pool a job alone exceeds, in words; "" if none."""
        limits = PoolLimit.decide(Case(self._facts, job, pool))
        return next((limit.explain_never() for limit in limits if limit.lack() is None), "")

    def spares_beside(self, job: Job, agents: Sequence[AgentId]) -> tuple[Spare, ...] | None:
        """Return the rest of the limits of a job for others if it still had its ended tasks.

        None if it may not use the pools of these tasks any more, or if limits, lend limits of other queues, or the
        guarantee of its queue never let it have them again.

        Args:
            job: Job whose other tasks are being ended.
            agents: Agent of each ended task.
        """
        held, tasks = self._held, Counter(map(self._held.pool_of, agents))
        if not tasks.keys() <= {*held.pools.every(job)}:
            return None
        if any(self._beyond_in(job, p) or not self.lending.ever_leaves_room(job, p) for p in tasks):
            return None
        wants = [(pool, held.cost_of(job, pool) // job.spec.tasks) for pool in tasks]
        if not could_be_seated(self._tree, job.spec, wants, cells_now(self._state, self._tree)):
            return None
        return tuple(
            Spare(
                bound.path,
                bound.pool,
                bound.milli
                - held.amount(bound.path, bound.pool)
                - held.cost_of(job, bound.pool) * tasks[bound.pool] // job.spec.tasks,
            )
            for bound in self.bounds(job)
            if tasks[bound.pool]
        )
