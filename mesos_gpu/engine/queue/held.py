"""Holdings of queues and users during a match, by the tree of queues, in thousandths of cost.

They follow the assignments of the match as a book of its ledger. The module also has the pools that a job may use, by
its queue, its class and its waiting time, and what lend limits keep of pools.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from mesos_gpu.engine.charges import charged_with, pool_of_node, pools_of_node
from mesos_gpu.engine.indexes.charges import Charges, up
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import DEFAULT_POOL, EVERYBODY, ROOT
from mesos_gpu.policy.admission.limits import Lack, class_of, pools_for
from mesos_gpu.policy.capacity.node import Reservation
from mesos_gpu.policy.tenancy.cells import owed_in
from mesos_gpu.policy.tenancy.tree import Bound, Tree, lineage


def waits_since(state: State, job: Job) -> float:
    """Return when a pending job began to wait, in seconds since the epoch.

    That is the latest of: its submission, its earliest start, and the end of its last tasks.
    """
    ended = (task.ended_at or 0.0 for task in state.work.round_of(job))
    return max(job.submitted_at, job.not_before, *ended)


def has_room(job: Job) -> bool:
    """Return whether room was made for a job, or is being made, on nodes that are reserved for it."""
    return job.room_made_at is not None and bool(job.room_on)


class Pools:
    """Pools that jobs may use at one moment; valid as long as no node changes.

    Args:
        state: State of the engine.
        tree: Tree of the queues.
        now: Time, in seconds since the epoch.
    """

    def __init__(self, state: State, tree: Tree, now: float) -> None:
        self._state, self._tree, self._now = state, tree, now
        self._every: dict[tuple[str, str | None, tuple[str, ...]], tuple[str, ...]] = {}

    @cached_property
    def models(self) -> Mapping[str, frozenset[str]]:
        """Models of the GPUs in each pool that has nodes."""
        models: dict[str, set[str]] = {}
        for node in self._state.cluster.nodes.values():
            pool_models = models.setdefault(pool_of_node(self._tree, node), set())
            pool_models.update(gpu.model for gpu in node.gpus)
        return {pool: frozenset(names) for pool, names in models.items()}

    def every(self, job: Job) -> tuple[str, ...]:
        """Return all pools that a job may use at any time, in the order of its queue.

        Pools without a node that has a model which the job asks for come last, as waiting for them is of no use.
        """
        spec = job.spec
        model_names = spec.gpu_model if self._tree.overflow_after_s(spec.queue) is not None else ()
        key = spec.queue, spec.job_class, model_names
        pools = self._every.get(key)
        if pools is None:
            pools = pools_for(self._tree, spec.queue, class_of(self._tree, spec.job_class))
            if self._tree.overflow_after_s(spec.queue) is not None and len(pools) > 1:
                pools = tuple(sorted(pools, key=lambda pool: not self._has(pool, model_names)))
            self._every[key] = pools
        return pools

    def _has(self, pool: str, wanted: tuple[str, ...]) -> bool:
        """Return whether a pool has GPUs of some models; without models, whether it has any GPU."""
        models = self.models.get(pool, frozenset())
        return bool(models & {*self._state.cluster.models_of(wanted)} if wanted else models)

    def count(self, job: Job) -> int:
        """Return the number of pools of `every` that a job may use now, from the first on."""
        every = len(self.every(job))
        if every < 2 or job.state is not JobState.PENDING:
            return every
        after_s = self._tree.overflow_after_s(job.spec.queue)
        if not after_s:
            return every
        waited_s = self._now - waits_since(self._state, job)
        return max(1, min(every, 1 + int(waited_s // after_s)))

    def now(self, job: Job) -> tuple[str, ...]:
        """Return the pools that a job may use now, the first choice first."""
        every = self.every(job)
        return every if len(every) < 2 else every[: self.count(job)]

    def opens_at(self, job: Job, pool: str) -> float:
        """Return from when on a job may use a pool of `every`, in seconds since the epoch; 0 for now."""
        every = self.every(job)
        place = every.index(pool) if pool in every else 0
        if place < self.count(job):
            return 0.0
        return waits_since(self._state, job) + place * (self._tree.overflow_after_s(job.spec.queue) or 0.0)

    def next(self, job: Job) -> tuple[str, float] | None:
        """Return the pool that a job may use next, and from when on; None if it may use all of its pools."""
        every, count = self.every(job), self.count(job)
        return None if count == len(every) else (every[count], self.opens_at(job, every[count]))

    def preferred(
        self, job: Job, open_to: Collection[str], seat: GuaranteedAdmission | None
    ) -> Sequence[frozenset[str]]:
        """Return groups of pools in which to look for a place, the best first.

        The pool of the job's seat is first. The others follow one by one in the order of the queue, or as one group
        without such an order. A job that may not borrow gets the pool of its seat only.

        Args:
            open_to: Pools that the job may use now, and that have room in their limits.
            seat: Seat of the job; None if it borrows.
        """
        first = [frozenset((seat.pool,)) & {*open_to}] if seat is not None else []
        if first and not job.spec.preemptible:
            return first
        if self._tree.overflow_after_s(job.spec.queue) is None:
            return [*first, frozenset(open_to)]
        return [*first, *(frozenset((pool,)) for pool in self.now(job) if pool in open_to)]


class Held:
    """Holdings of queues and users: those at the begin of a match, and what the match has taken since."""

    def __init__(self, state: State, charges: Charges, now: float) -> None:
        self._state, self._charges = state, charges
        self.tree = charges.tree
        self._of_task = dict(charges.of_task)
        self.sums = charges.sums.copied()
        self.amount = self.sums.amount
        self._taken: list[tuple[Job, Charge] | None] = []
        self._charged: tuple[Take, Charge] | None = None  # latest result of `charge_of_take`
        self._costs: dict[tuple[tuple[str, ...], int, str], int] = {}
        self._holdings: dict[Lack, dict[JobId, int]] = {}
        self._pools: dict[AgentId, str] = {}
        self._able: dict[AgentId, frozenset[str]] = {}  # pools that a node may be in
        self.pools = Pools(state, self.tree, now)
        self._sets: dict[tuple[str, ...], frozenset[str]] = {}
        self._owed: dict[tuple[str, int], Mapping[str, int]] = {}
        # Result of `_kept_idle` by queue and pool, with the capacity for which it was computed.
        self._idle: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def revision(self) -> int:
        """Number that grows with each change."""
        return self.sums.revision

    def queue_of(self, job: Job) -> str:
        """Return the queue that a job is charged to."""
        return self._charges.queue_of(job)

    def tasks_below(self, queue: str) -> list[Task]:
        """Return the tasks charged to a queue or one below it when the match began, in launch order."""
        charged, tasks = self._of_task, self._state.work.tasks
        return [
            tasks[task_id]
            for task_id in self._state.work.live
            if (entry := charged.get(task_id)) is not None and queue in up(entry[1].queue)
        ]

    def charge_of(self, task: Task) -> Charge:
        """Return the charge of a task at the begin of the match."""
        return self._of_task[task.id][1]

    def pools_of_jobs(self, jobs: Collection[JobId]) -> set[str]:
        """Return the pools in which some jobs held anything when the match began."""
        return {charge.pool for job_id, charge in self._of_task.values() if job_id in jobs}

    def holdings(self, lack: Lack) -> Mapping[JobId, int]:
        """Return the holdings at the begin of the match that count under a limit, by job.

        Args:
            lack: The limit (queue, pool, user); its `amount` is ignored.

        Returns:
            Thousandths of cost by job, or 1 for each job if the limit counts jobs.
        """
        key = replace(lack, amount=0)
        holdings = self._holdings.get(key)
        if holdings is None:
            holdings = self._holdings[key] = {}
            for job_id, charge in self._of_task.values():
                in_pool = not lack.pool or charge.pool == lack.pool
                if in_pool and lack.path in up(charge.queue) and lack.user in (EVERYBODY, charge.user):
                    holdings[job_id] = 1 if lack.counts_jobs else holdings.get(job_id, 0) + charge.milli
        return holdings

    def taken_below(self, queue: str) -> list[tuple[Job, Charge]]:
        """Return the jobs that this match has launched for a queue or one below it, with their charges."""
        return [taken for taken in self._taken if taken is not None and queue in up(taken[1].queue)]

    def pool_of(self, agent_id: AgentId) -> str:
        """Return the pool of a node."""
        if not self.tree.document.pools:
            return DEFAULT_POOL
        pool = self._pools.get(agent_id)
        if pool is None:
            pool = self._pools[agent_id] = pool_of_node(self.tree, self._state.cluster.nodes.get(agent_id))
        return pool

    def is_in(self, agent_id: AgentId, pools: Collection[str]) -> bool:
        """Return whether a node is in one of some pools.

        A node that has not reported its GPUs yet is in them only if that holds for any GPUs it may report.
        """
        able = self._able.get(agent_id)
        if able is None:
            able = self._able[agent_id] = pools_of_node(self.tree, self._state.cluster.nodes.get(agent_id))
        return able.issubset(pools)

    def kept_from(self, queue: str, pool: str, amount: int, *, at_most: bool = False) -> int:
        """Return what other queues keep idle of a pool by their lend limits, which no job of a queue may take.

        Args:
            queue: Path of the queue.
            pool: Name of the pool.
            amount: Capacity of the pool, thousandths of cost; where guarantees exceed it, less is kept.
            at_most: Whether all queues are taken to hold nothing.
        """
        tree = self.tree
        if pool not in tree.lenders:
            return 0
        own = set(lineage(queue))
        beside = (child for path in (*own, ROOT) for child in tree.children.get(path, ()) if child not in own)
        return sum(self._kept_idle(path, pool, amount, at_most=at_most) for path in beside)

    def kept_for(self, queue: str, other: str, pool: str, amount: int) -> int:
        """Return what lend limits keep idle of a pool for jobs of one queue from jobs of another; see `kept_from`."""
        if pool not in self.tree.lenders:
            return 0
        paths = set(lineage(queue)).difference(lineage(other))
        return max((self._kept_idle(path, pool, amount) for path in paths), default=0)

    def _kept_idle(self, queue: str, pool: str, amount: int, *, at_most: bool = False) -> int:
        """Return what a queue and those below it keep idle of a pool by their lend limits, in thousandths of cost."""
        if at_most:
            return self._work_out_idle(queue, pool, amount, at_most=True)
        cached = self._idle.get((queue, pool))
        if cached is None or cached[0] != amount:
            cached = self._idle[queue, pool] = amount, self._work_out_idle(queue, pool, amount)
        return cached[1]

    def _work_out_idle(self, queue: str, pool: str, amount: int, *, at_most: bool = False) -> int:
        """Compute what a queue and those below it keep idle of a pool; see `_kept_idle`."""
        guarantees = self._owed.get((pool, amount))
        if guarantees is None:
            guarantees = self._owed[pool, amount] = owed_in(self.tree, pool, amount)
        lent = self.tree.specs[queue].lend_limit_gpus.get(pool)
        held = 0 if at_most else self.amount(queue, pool)
        kept = 0 if lent is None else max(0, guarantees.get(queue, 0) - lent - held)
        children = self.tree.children.get(queue, ())
        return max(kept, sum(self._kept_idle(child, pool, amount, at_most=at_most) for child in children))

    # --- what a job may cost

    def pools_of(self, job: Job) -> frozenset[str]:
        """Return the pools that a job may use now."""
        pools = self.pools.now(job)
        pool_set = self._sets.get(pools)
        if pool_set is None:
            pool_set = self._sets[pools] = frozenset(pools)
        return pool_set

    def parts(self, job: Job, pools: Iterable[str], together: Collection[str]) -> list[tuple[str, ...]]:
        """Return the groups of pools in which to look for room.

        Each pool is a group; for a gang whose queue does not order its pools, `together` is one more.
        """
        parts: list[tuple[str, ...]] = [(pool,) for pool in sorted(pools)]
        if job.spec.tasks > 1 and len(together) > 1 and self.tree.overflow_after_s(job.spec.queue) is None:
            parts.append(tuple(sorted(together)))
        return parts

    def may_use_room(self, job: Job) -> bool:
        """Return whether all nodes that are reserved for a job are in pools that it may use, now or later."""
        nodes, pools = self._state.cluster.nodes, self.pools.every(job)
        return all(self.pool_of(agent_id) in pools for agent_id in job.room_on if agent_id in nodes)

    def pools_with(self, job: Job) -> list[str]:
        """Return the pools that a job may use now and that have a model which it asks for."""
        models = self._state.cluster.models_of(job.spec.gpu_model)
        return [
            pool
            for pool in sorted(self.pools_of(job))
            if (pool_models := self.pools.models.get(pool)) is not None
            and (not models or pool_models & {*models})
        ]

    def cost_of(self, job: Job, pool: str) -> int:
        """Return the highest cost of all tasks of a job in a pool, in thousandths: by the dearest model it may get."""
        milli = job.spec.gpu_milli_in_all
        if not self.tree.document.gpu_cost or not milli:
            return milli
        key = job.spec.gpu_model, milli, pool
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = milli * self._dearest(job.spec.gpu_model, pool)
        return cost

    def _dearest(self, wanted: tuple[str, ...], pool: str) -> int:
        """Return the highest cost of a model that a job may get in a pool; without one, of a model it asks for."""
        document, in_pool = self.tree.document, self.pools.models.get(pool, frozenset())
        models = in_pool & {*self._state.cluster.models_of(wanted)} if wanted else in_pool
        return max(map(document.cost_of, models)) if models else document.most_cost_of(wanted)

    # --- a book of the ledger

    def take(self, take: Take) -> None:
        """Charge an assignment."""
        job, charge = take.job, self.charge_of_take(take)
        self._taken.append(None if job is None or charge is None else (job, charge))
        if job is not None and charge is not None:
            self._add(job, charge, 1)

    def undo(self, take: Take) -> None:
        """Undo the charge of the latest assignment."""
        taken = self._taken.pop()
        if taken is not None:
            job, charge = taken
            self._add(job, charge, -1)

    def _add(self, job: Job, charge: Charge, sign: int) -> None:
        """Add a charge to the sums or subtract it, and drop cached amounts that depend on it."""
        self.sums.add(job.id, charge, sign)
        for path in up(charge.queue) if self._idle else ():
            self._idle.pop((path, charge.pool), None)

    def charge_of_take(self, take: Take) -> Charge | None:
        """Return the charge of an assignment; None for a task without a job."""
        if self._charged is not None and self._charged[0] is take:
            return self._charged[1]
        job = take.job
        if job is None or take.request is None:
            return None
        node, counted = self._state.cluster.nodes.get(take.agent_id), job.spec.counted_milli
        granted = counted if take.share is None else max(counted, len(take.gpus) * take.share.compute_milli)
        pool = self.pool_of(take.agent_id)
        charge = charged_with(self._charges, job, pool, node, take.gpus, counted, granted)
        self._charged = take, charge
        return charge


class Lending:
    """Lend limits of queues during a match: what they keep of a pool from jobs of other queues.

    Args:
        state: State of the engine.
        held: Holdings of queues.
        amount: Function that returns the capacity of a pool in thousandths of cost; None to keep nothing.
    """

    def __init__(self, state: State, held: Held, amount: Callable[[str], int] | None) -> None:
        self._state, self._held, self._amount = state, held, amount
        self._pools = held.tree.lenders if amount is not None else frozenset()

    def beside(self, job: Job, pool: str) -> tuple[int, int]:
        """Return what is free of a pool, and what lend limits keep of it from a job, in thousandths of cost.

        Both are 0 without a lend limit.
        """
        if pool not in self._pools or self._amount is None:
            return 0, 0
        amount = self._amount(pool)
        return amount - self._held.amount(ROOT, pool), self._held.kept_from(job.spec.queue, pool, amount)

    def bound(self, job: Job, pool: str) -> Bound | None:
        """Return the limit of all queues together in a pool for a job to start; None if nothing is kept from it."""
        if pool not in self._pools or self._amount is None or not job.spec.gpu_milli_in_all:
            return None
        amount = self._amount(pool)
        return Bound(ROOT, pool, amount - self._held.kept_from(job.spec.queue, pool, amount))

    def ever_leaves_room(self, job: Job, pool: str) -> bool:
        """Return whether a pool has room for a job beside what lend limits keep, if no queue held anything."""
        if pool not in self._pools or self._amount is None:
            return True
        amount = self._amount(pool)
        kept = self._held.kept_from(job.spec.queue, pool, amount, at_most=True)
        return not kept or kept + self._held.cost_of(job, pool) <= amount

    def kind(self, job: Job) -> Hashable:
        """Return a key of a job; `takes_own` gives one result for jobs with one key."""
        spec = job.spec
        of_queue = spec.queue, spec.gpu_milli_in_all, spec.gpu_model, self._held.revision
        return of_queue if self._pools else None

    def takes_own(self, job: Job, kept: Reservation) -> bool:
        """Return whether a job may take what is reserved for a job of another queue that waits for lend limits.

        It may if lend limits keep as much of a pool for its own queue.
        """
        other = self._state.work.jobs.get(kept.job_id) if self._pools else None
        if other is None or self._amount is None:
            return False
        held, amount, own = self._held, self._amount, job.spec.queue
        return any(
            0 < held.cost_of(job, pool) <= held.kept_for(own, other.spec.queue, pool, amount(pool))
            and self._lack(other, pool) > 0
            for pool in held.pools_of(job) & self._pools & held.pools_of(other)
        )

    def _lack(self, job: Job, pool: str) -> int:
        """Return what must be given back before a job may start, in thousandths of cost; at most 0 if it may start."""
        free, kept = self.beside(job, pool)
        return kept + self._held.cost_of(job, pool) - free if kept else 0
