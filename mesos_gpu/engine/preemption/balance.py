"""Transfers between jobs without guaranteed admission: from queues with more of their fair share to those with less."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.preemption.running import Running, RunningJob
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.room.balance import Side, stays_below
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.tenancy.tree import lineage, meeting


class Balance:
    """Amounts that queues will hold once all plans are carried out, compared with their fair shares."""

    def __init__(self, turn: Turn, seating: Admissions, backlog: Backlog, running: Running) -> None:
        self._turn, self._seating, self._held, self._running = turn, seating, backlog.held, running

    @cached_property
    def _shares(self) -> Shares:
        return standing_of(self._turn.state, self._turn.settings, self._turn.now)

    def rule_for(self, job: Job) -> Callable[[Sequence[Victim]], bool] | None:
        """Return the rule for victims that are ended together for a job; None if it has a seat, and needs no rule."""
        if self._seating.seat_for(job) is not None:
            return None
        return lambda chosen: self.allows(job, [self._running.runner_of(victim.job_id) for victim in chosen])

    def allows(self, job: Job, runners: Sequence[RunningJob]) -> bool:
        """Return whether a job without a seat may take what some jobs of other queues hold, all of them together."""
        leaf = leaf_of(self._seating.tree, job)
        freed: dict[tuple[str, str, str], int] = {}
        for runner in runners:
            if runner.leaf != leaf and runner.job.id not in self._running.idle:
                taker_path, giver_path = meeting(leaf, runner.leaf)
                freed[taker_path, giver_path, runner.pool] = (
                    freed.get((taker_path, giver_path, runner.pool), 0) + runner.milli
                )
        for (taker_path, giver_path, pool), milli in freed.items():
            taker, giver = self._side(taker_path, pool), self._side(giver_path, pool)
            if not stays_below(taker, self._held.cost_of(job, pool), giver, milli):
                return False
        return True

    def _side(self, path: str, pool: str) -> Side:
        """Return the usage of a pool by a queue once all plans are carried out, with its fair share."""
        return Side(self._held.amount(path, pool) + self._to_come[path, pool], self._shares.due(path, pool))

    @cached_property
    def _to_come(self) -> Counter[tuple[str, str]]:
        """Change of what each queue holds in each pool, once jobs with notices have ended and their takers run."""
        state, sums = self._turn.state, Counter[tuple[str, str]]()
        givers: dict[JobId, Job] = {}
        for task_id in state.work.live:
            task = state.work.tasks[task_id]
            job = state.work.current(task)
            if job is not None and task.preempted_for is not None and job.room_made_at is None:
                givers[job.id] = job  # a job that moves holds the same amount in its new place
        for job in givers.values():
            pool, milli = self._seating.ground.granted(job)
            self._add(sums, job, pool, -milli * job.spec.tasks)
        for _, job_id in state.work.queue:
            job = state.work.jobs[job_id]
            if job.room_made_at is not None:
                self._add(sums, job, *self.wanted(job))
        return sums

    def _add(self, sums: Counter[tuple[str, str]], job: Job, pool: str, milli: int) -> None:
        """Add an amount to the sums of a job's leaf and of the queues above it."""
        for path in lineage(leaf_of(self._seating.tree, job)):
            sums[path, pool] += milli

    def wanted(self, job: Job) -> tuple[str, int]:
        """Return the pool in which a waiting job would run, and the cost that it would hold there, in thousandths.

        The pool is that of its seat, or of the room that was made for it.
        """
        seat = self._seating.seat_for(job)
        if seat is not None:
            return seat.pool, seat.milli * job.spec.tasks
        ground, nodes = self._seating.ground, self._turn.state.cluster.nodes
        room = {ground.pool_of(nodes[agent_id]) for agent_id in job.room_on if agent_id in nodes}
        wants = ground.wants(job) or ((DEFAULT_POOL, job.spec.counted_milli),)
        pool, milli = next((want for want in wants if want[0] in room), wants[0])
        return pool, milli * job.spec.tasks

    def forget_plans(self) -> None:
        """Drop the cached sums, as the state has one more plan."""
        self.__dict__.pop("_to_come", None)
