"""What keeps a job waiting though there were room for it: limits, and what queues and classes say."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import ceil, inf

from mesos_gpu.engine.indexes.leaves import rank_in_leaf, ruled_as
from mesos_gpu.engine.queue.budgets import Budgets
from mesos_gpu.engine.queue.held import Held, has_room
from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.queue.line import Standing
from mesos_gpu.engine.room.given_up import precedes
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tenancy import DEFAULT_POOL, ROOT
from mesos_gpu.model.words import counted
from mesos_gpu.policy.admission.limits import Lack, Scope, Wait, scopes_of, wait_of_queue, waits_of_scopes
from mesos_gpu.policy.capacity.node import Reservation, Spare
from mesos_gpu.policy.room.preemption import Shortage
from mesos_gpu.policy.room.reservation import ends_by
from mesos_gpu.policy.tenancy.tree import Bound, lineage

Reservations = Sequence[Reservation]


class Barriers:
    """Valid as long as what is held changes only by what the match takes."""

    def __init__(
        self,
        state: State,
        held: Held,
        now: float,
        attained: Attained,
        standing: Standing | None,
        aging_step_s: float = inf,
    ) -> None:
        """Look at nothing yet. The arguments are those of `Backlog`, and one of its settings."""
        self._rank = partial(rank_in_leaf, now=now, step_s=aging_step_s)
        self._state, self._held, self._now, self._standing = state, held, now, standing
        self._attained = attained
        self._tree = held.tree
        self._budgets = Budgets(state, now)
        self._scopes: dict[tuple[str, str], tuple[Scope, ...]] = {}
        self._known: dict[Hashable, Wait | None] = {}
        self._known_at: tuple[int, Reservations] = -1, ()
        self._rules: dict[Hashable, Wait | None] = {}
        self._rules_at = -1

    def wait_of(self, job: Job, reservations: Reservations) -> Wait | None:
        """Why a job may not start now; None: it may, as far as limits go.

        Args:
            job: One that waits.
            reservations: What is kept of limits for jobs before it.
        """
        if self._tree.is_flat and not self.bounds(job):
            return None
        revision, last = self._known_at
        if revision != self._held.revision or last is not reservations:
            self._known.clear()
            self._known_at = self._held.revision, reservations
        key = self._kind(job)
        if key not in self._known:
            self._known[key] = self.wait_of_rules(job) or self._wait_of_pools(job, reservations)
        return self._known[key]

    def wait_of_rules(self, job: Job) -> Wait | None:
        """Why it may not start that no reservation could help; None: nothing of that kind."""
        if self._tree.is_flat:
            return None
        if self._rules_at != self._held.revision:
            self._rules.clear()
            self._rules_at = self._held.revision
        key = self._kind(job)
        if key not in self._rules:
            self._rules[key] = next(self._blockers(job), None)
        return self._rules[key]

    def _kind(self, job: Job) -> Hashable:
        """Jobs of one kind wait for the same."""
        own = None if job.room_made_at is None else job.id  # something may be kept for it itself
        return ruled_as(job), job.id in self._state.quota.seats_given, own, self._held.pools.count(job)

    # --- the list of blockers

    def _blockers(self, job: Job) -> Iterator[Wait]:
        """Yield what keeps a job waiting in every pool, the most decisive first; a seat helps only if it comes last."""
        of_queue = wait_of_queue(self._tree, job.spec, seated=job.id in self._state.quota.seats_given)
        lacks_seat = of_queue is not None and of_queue.stage is Stage.GUARANTEE
        if of_queue is not None and not lacks_seat:
            yield of_queue
        if lacks_seat and (wait := self._budgets.wait_for_seat(job)):
            yield wait
        dearest = max((self._held.cost_of(job, pool) for pool in self._held.pools_of(job)), default=0)
        if wait := self._budgets.refuses(job, dearest, self._held.taken_below):
            yield wait
        costs = (self._held.cost_of(job, pool) for pool in self._held.pools_with(job))
        yield from self._blockers_of_scopes(job, min(costs, default=dearest))
        if of_queue is not None and lacks_seat:
            yield of_queue

    def _blockers_in(self, job: Job, pool: str, reservations: Reservations) -> Iterator[Wait]:
        """Yield what keeps a job waiting in one pool, the most decisive first."""
        held, cost = self._held, self._held.cost_of(job, pool)
        bounds = [each for each in self.bounds(job) if each.pool == pool]
        for bound in bounds:
            lack = held.amount(bound.path, pool) + cost - bound.milli
            if lack > 0:
                of_bound = Lack(lack, bound.path, pool) if cost <= bound.milli else None
                yield Wait(Stage.QUEUE_LIMIT, self._holds(bound), lack=of_bound)
        spare = (
            self._spare_beside(job, pool, reservations, cost)
            if bounds or pool in self._tree.lenders
            else None
        )
        if spare is not None:
            beside = Lack(ceil(cost - spare.milli), spare.queue, pool)
            if spare.queue == ROOT:
                words = f"what other queues lend{_of(pool)} is kept for a job before it"
                yield Wait(Stage.GUARANTEE, words, lack=beside)
            else:
                bound = next(each for each in bounds if each.path == spare.queue)
                words = f"{self._holds(bound)}; the rest is kept for a job before it"
                yield Wait(Stage.QUEUE_LIMIT, words, lack=beside if cost <= bound.milli else None)
        yield from self._blockers_of_scopes(job, cost)
        if wait := self.wait_of_lenders(job, pool, cost):
            yield wait

    def _blockers_of_scopes(self, job: Job, cost: int) -> Iterator[Wait]:
        if not self._tree.is_flat and (scopes := self._scopes_of(job)):
            sums = self._held.sums
            yield from waits_of_scopes(
                scopes, cost, lambda *owner: sums.jobs[owner], lambda *owner: sums.users[owner]
            )

    def open_pools(self, job: Job, reservations: Reservations) -> frozenset[str]:
        """The pools whose limits leave room for all of a job."""
        pools = self._held.pools_of(job)
        return frozenset(pool for pool in pools if self._wait_in(job, pool, reservations) is None)

    def pools_of_booked(self, job: Job, reservations: Reservations) -> frozenset[str]:
        """The pools in which it may have what is booked for it: without a seat, and without waiting for its turn in an
        order of pools, but within limits."""
        waits = {pool: self._wait_in(job, pool, reservations) for pool in self._held.pools.every(job)}
        return frozenset(pool for pool, w in waits.items() if w is None or w.stage is Stage.GUARANTEE)

    def may_be_seated(self, job: Job, pool: str | None, reservations: Reservations) -> bool:
        """Whether it could start if it had a seat, in any pool or in that one."""
        wait = self.wait_of(job, reservations)
        if wait is not None and wait.stage not in (Stage.GUARANTEE, Stage.POOL):
            return False
        if not self._tree.document.pools:
            return True
        pools = self._held.pools_of(job) if pool is None else self._held.pools_of(job) & {pool}
        waits = (self._wait_in(job, each, reservations) for each in pools)
        return any(each is None or each.stage is Stage.GUARANTEE for each in waits)

    def shortages(self, job: Job, reservations: Reservations) -> dict[str, list[Shortage]]:
        """Return what a job lacks of limits, and which jobs would give it back by their ends.

        Args:
            job: Job that waits.
            reservations: Reservations of jobs before it.

        Returns:
            Shortages by pool that it may use. Empty if no limit keeps it waiting, or if no end would help.
        """
        if self.wait_of(job, reservations) is None:
            return {}
        everywhere = list(self._blockers(job))
        by_pool: dict[str, list[Shortage]] = {}
        for pool in sorted(self._held.pools_of(job)):
            lacks = [wait.lack for wait in (*everywhere, *self._blockers_in(job, pool, reservations))]
            known = [lack for lack in lacks if lack is not None]
            if len(known) == len(lacks):
                by_pool[pool] = [Shortage(lack.amount, self._held.holdings(lack)) for lack in known]
        return by_pool

    def has_room_without(self, job: Job, ended: Collection[JobId]) -> bool:
        """Return whether all limits let a job that lacks a seat start where some jobs run, when these have ended."""
        pools = self._held.pools_of_jobs(ended)
        waits = chain(self._blockers(job), *(self._blockers_in(job, pool, ()) for pool in pools))
        lacks = [wait.lack for wait in waits if wait.stage is not Stage.GUARANTEE or wait.lack is not None]
        return pools <= self._held.pools_of(job) and all(
            lack is not None and sum(self._held.holdings(lack).get(each, 0) for each in ended) >= lack.amount
            for lack in lacks
        )

    def bounds(self, job: Job) -> Sequence[Bound]:
        """The limits of GPUs that hold for a job: of its queue, and of those above it."""
        every = self._tree.bounds
        return every.get(self._held.queue_of(job), ()) if every and job.spec.gpu_milli_in_all else ()

    def bounds_in(self, job: Job, pool: str) -> list[Bound]:
        """Return the limits of GPUs that hold for a job in a pool; what other queues lend is a limit of all queues."""
        bounds = [each for each in self.bounds(job) if each.pool == pool]
        if pool in self._tree.lenders and self._standing is not None and job.spec.gpu_milli_in_all:
            amount = self._standing.amount(pool)
            bounds.append(Bound(ROOT, pool, amount - self._held.kept_from(job.spec.queue, pool, amount)))
        return bounds

    def beyond(self, job: Job) -> str:
        """Which limit never lets a job start, in words; "": none does so, or in other hours it is another."""
        if self._tree.has_hours(self._held.queue_of(job)):
            return ""
        whys = [self._beyond_in(job, pool) for pool in sorted(self._held.pools.every(job))]
        return whys[0] if whys and all(whys) else ""

    def may_hold(self, job: Job) -> list[str]:
        """The pools that it may use now of which limits let it hold what it asks for, whatever others hold."""
        pools = self._held.pools_of(job)
        return [pool for pool in pools if not self._beyond_in(job, pool) and self._is_lent(job, pool)]

    def _is_lent(self, job: Job, pool: str) -> bool:
        """Return whether the lend limits of other queues leave a job what it asks for while they hold nothing."""
        if pool not in self._tree.lenders or self._standing is None:
            return True
        amount = self._standing.amount(pool)
        kept = self._held.kept_from(job.spec.queue, pool, amount, at_most=True)
        return not kept or kept + self._held.cost_of(job, pool) <= amount

    def _beyond_in(self, job: Job, pool: str) -> str:
        wanted = self._held.cost_of(job, pool)
        bound = next((each for each in self.bounds(job) if each.pool == pool and wanted > each.milli), None)
        if bound is None:
            return ""
        return f"queue {bound.path} may hold {_gpus(bound.milli)}{_of(pool)}, and it asks for {number_of(wanted)}"

    def _scopes_of(self, job: Job) -> tuple[Scope, ...]:
        key = self._held.queue_of(job), job.charged_to
        scopes = self._scopes.get(key)
        if scopes is None:
            scopes = self._scopes[key] = scopes_of(self._tree, *key)
        return scopes

    def _wait_of_pools(self, job: Job, reservations: Reservations) -> Wait | None:
        """Why no pool that it may use has room in its limits; None: one has."""
        if not job.spec.gpu_milli_in_all:
            return None
        waits: list[Wait] = []
        for pool in sorted(self._held.pools_of(job)):
            wait = self._wait_in(job, pool, reservations)
            if wait is None:
                return None
            waits.append(wait)
        if len(waits) == 1:
            return waits[0]
        return Wait(Stage.POOL, "; ".join(wait.words for wait in waits))

    def _wait_in(self, job: Job, pool: str, reservations: Reservations) -> Wait | None:
        return next(self._blockers_in(job, pool, reservations), None)

    def _spare_beside(self, job: Job, pool: str, reservations: Reservations, cost: int) -> Spare | None:
        """Return the rest of a limit that reservations of jobs before a job leave, if it is too little for the job."""
        ends_at = ends_by(job.spec, self._now)
        above = (*lineage(job.spec.queue), ROOT)
        return next(
            (
                spare
                for kept in reservations
                if kept.spares and self._attained.in_way(job, ends_at, kept) and not self._yields(kept, job)
                if not (kept.is_given_up and precedes(self._state, job, kept, self._rank))
                for spare in kept.spares
                if spare.pool == pool and spare.queue in above and cost > spare.milli
                if spare.queue != ROOT or not self.takes_own(job, kept)
            ),
            None,
        )

    def _yields(self, kept: Reservation, job: Job) -> bool:
        """Whether something is kept for one that comes after a job for which something is kept, too: where a limit has
        room for one of them, neither could start else."""
        other = self._state.work.jobs.get(kept.job_id) if has_room(job) else None
        if other is None or not has_room(other):
            return False
        return (-other.priority, other.sequence) > (-job.priority, job.sequence)

    def wait_of_lenders(self, job: Job, pool: str, cost: int) -> Wait | None:
        """Return why lend limits leave no room for a job to hold more of a pool; None if they do.

        Args:
            job: Job that waits, or that runs and grows.
            pool: Name of the pool.
            cost: Thousandths of cost that the job takes beyond what it holds.
        """
        free, kept = self._beside_lenders(job, pool)
        lack = kept + cost - free
        if not kept or lack <= 0:
            return None
        words = f"{_gpus(max(free, 0))}{_of(pool)} are free, and of these queues keep {number_of(kept)} for themselves"
        return Wait(Stage.GUARANTEE, f"{words} by their lend_limit_gpus", lack=Lack(lack, ROOT, pool))

    def _lack_of_lenders(self, job: Job, pool: str, cost: int) -> int:
        """Return what others must give back before a job may start, thousandths of cost, for queues not to lend more
        than their lend limits; 0 or less if it may start."""
        free, kept = self._beside_lenders(job, pool)
        return kept + cost - free if kept else 0

    def _beside_lenders(self, job: Job, pool: str) -> tuple[int, int]:
        """Return what is free of a pool and what lend limits keep of it from a job, thousandths of cost; zeros if no
        queue has a lend limit there."""
        if pool not in self._tree.lenders or self._standing is None:
            return 0, 0
        amount = self._standing.amount(pool)
        return amount - self._held.amount(ROOT, pool), self._held.kept_from(job.spec.queue, pool, amount)

    def spares_beside(self, job: Job, agents: Sequence[AgentId]) -> tuple[Spare, ...] | None:
        """Return what the limits of a job leave to others if it still had ended tasks; None if they let it no more.

        Args:
            job: Job whose other tasks are being ended.
            agents: Agent of each ended task.
        """
        held, tasks = self._held, Counter(map(self._held.pool_of, agents))
        if any(self._beyond_in(job, pool) for pool in tasks):
            return None
        return tuple(
            Spare(
                each.path,
                each.pool,
                each.milli
                - held.amount(each.path, each.pool)
                - held.cost_of(job, each.pool) * tasks[each.pool] // job.spec.tasks,
            )
            for each in self.bounds(job)
            if tasks[each.pool]
        )

    def kind_of_lender(self, job: Job) -> Hashable:
        """Return what jobs have in common for which `takes_own` is the same."""
        spec = job.spec
        of_queue = spec.queue, spec.gpu_milli_in_all, spec.gpu_model, self._held.revision
        return of_queue if self._tree.lenders else None

    def takes_own(self, job: Job, kept: Reservation) -> bool:
        """Whether a job may take what is kept for another one that waits for queues to lend no more than they may:
        their lend limits keep as much for the queue of the first one."""
        other = self._state.work.jobs.get(kept.job_id) if self._tree.lenders else None
        if other is None or self._standing is None:
            return False
        held, standing, own = self._held, self._standing, job.spec.queue
        return any(
            0 < held.cost_of(job, pool) <= held.kept_for(own, other.spec.queue, pool, standing.amount(pool))
            and self._lack_of_lenders(other, pool, held.cost_of(other, pool)) > 0
            for pool in held.pools_of(job) & self._tree.lenders & held.pools_of(other)
        )

    def _holds(self, bound: Bound) -> str:
        has = number_of(self._held.amount(bound.path, bound.pool))
        return f"queue {bound.path} may hold {_gpus(bound.milli)}{_of(bound.pool)}, and holds {has}"


def _gpus(milli: int) -> str:
    return counted(number_of(milli), "GPU")


def _of(pool: str) -> str:
    return "" if pool == DEFAULT_POOL else f" of pool {pool}"
