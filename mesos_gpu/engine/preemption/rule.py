"""Who may be stopped for whom in a tree of queues, and what that costs.

A waiting job that has a seat takes GPUs from borrowers of any queue: from none across a fence, from none that is
protected still, and as its queue's `reclaim` says. Within a queue a job of higher priority takes them from lower ones.
A job without a seat takes them from borrowers of another queue that has more for what it is due, even then. Nobody
takes them from a job that has a seat in another queue. But from a job whose GPUs do nothing, and whose rules have them
returned under pressure, everybody takes them who is inside its fence and in a queue that stops anybody at all.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any, Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.held import waits_since
from mesos_gpu.engine.tenancy.idle import returnable
from mesos_gpu.engine.tenancy.seats import Seating
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job
from mesos_gpu.model.tenancy import DEFAULT_POOL, LONGEST_S
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.room.balance import Side, stays_below
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.room.lost import Ran, cost, least_ms, lost_milli_s, ran
from mesos_gpu.policy.tenancy.tree import Queue, lineage, meeting

_WHOLE_H: Final = 100.0  # hours; of more, parts are not told
_LAST: Final = -(10**9)  # the priority of a job whose GPUs do nothing: nobody else is stopped before
MOVED_AGAIN_S: Final = 3600.0  # from one time that a job made room to when it goes elsewhere


@dataclass(frozen=True, slots=True)
class Runner:
    """A job that runs, and may be stopped for somebody.

    Attributes:
        job: It.
        leaf: Its queue.
        pool: Where it runs.
        milli: What it holds, thousandths of cost.
        victim: What its end costs.
        ran: How long it has run.
        least_ms: What any job of its queue loses at least that tells of checkpoints.
        started_at: Seconds since the epoch; endless: not all its tasks run yet.
    """

    job: Job
    leaf: str
    pool: str
    milli: int
    victim: Victim
    ran: Ran
    least_ms: int
    started_at: float


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The jobs of a leaf that run: the pool of each, and what each of its tasks takes there; how long each has run; and
    what any of them loses at least."""

    granted: Mapping[JobId, tuple[str, int]]
    ran: Mapping[JobId, Ran]
    least_ms: int


class Victims(Mapping[JobId, Victim]):
    """Jobs that may be stopped for one."""

    def __init__(
        self,
        running: Mapping[JobId, Job],
        known: dict[JobId, Victim | None],
        ask: Callable[[Job], Victim | None],
    ) -> None:
        """Ask of nobody yet.

        Args:
            running: All that may be stopped for anybody; who is planned to be is taken out of it.
            known: What was asked before.
            ask: What it costs to stop one; None: that may not be done.
        """
        self._running, self._known, self._ask = running, known, ask

    def get(self, job_id: Any, default: Any = None) -> Any:
        """What it costs to stop him."""
        other = self._running.get(job_id)
        if other is None:
            return default
        try:
            victim = self._known[job_id]
        except KeyError:
            victim = self._known[job_id] = self._ask(other)
        return default if victim is None else victim

    def __getitem__(self, job_id: JobId) -> Victim:
        """`get`, of one who may be stopped."""
        victim: Victim | None = self.get(job_id)
        if victim is None:
            raise KeyError(job_id)
        return victim

    def __contains__(self, job_id: object) -> bool:
        """Whether he may be stopped."""
        return self.get(job_id) is not None

    def __iter__(self) -> Iterator[JobId]:
        """All that may."""
        return (job_id for job_id in self._running if job_id in self)

    def __len__(self) -> int:
        """How many they are."""
        return sum(1 for _ in self)


class Reclaim:
    """The rule, at one moment."""

    def __init__(self, turn: Turn, seating: Seating, backlog: Backlog, running: Mapping[JobId, Job]) -> None:
        """Look at no job yet.

        Args:
            turn: The step.
            seating: Who has a seat.
            backlog: Of the match.
            running: The preemptible jobs that run, and are not told to end. Those whose idle GPUs may be returned
                are found here.
        """
        self._turn, self._seating, self._tree, self._backlog = turn, seating, seating.tree, backlog
        self._idle = returnable(turn)
        self._attained, self._running = backlog.attained, {**running, **self._idle}
        self._restart_ms = round(turn.settings.queue.restart_s * 1000)
        self._known: dict[Hashable, dict[JobId, Victim | None]] = {}
        self._later: dict[Hashable, set[float]] = {}  # moments that were found for jobs of a kind
        self._costs: dict[JobId, Victim | None] = {}
        self._bars: dict[tuple[str, str, bool], float] = {}
        self._held: dict[str, _Leaf] = {}
        self._runners: dict[JobId, Runner] = {}
        self._open: dict[tuple[str, float], tuple[dict[JobId, Victim], frozenset[float]]] = {}
        self.moments = set[float]()  # when somebody may be stopped who may not yet

    @property
    def next_at(self) -> float:
        """The first of them; endless: there is none."""
        return min(self.moments, default=inf)

    @cached_property
    def _shares(self) -> Shares:
        return standing_of(self._turn.state, self._turn.settings, self._turn.now)

    @cached_property
    def _leaves(self) -> Mapping[str, list[Job]]:
        leaves: dict[str, list[Job]] = {}
        for job in self._running.values():
            leaves.setdefault(leaf_of(self._tree, job), []).append(job)
        return leaves

    def _held_in(self, leaf: str) -> _Leaf:
        """Look up what the jobs of a leaf hold, and how long they have run."""
        known = self._held.get(leaf)
        if known is None:
            granted = {job.id: self._seating.ground.granted(job) for job in self._leaves[leaf]}
            all_ran = {
                job.id: self._ran(job, granted[job.id][1] * job.spec.tasks, self._turn.now)
                for job in self._leaves[leaf]
            }
            known = self._held[leaf] = _Leaf(granted, all_ran, least_ms([*all_ran.values()]))
        return known

    def _runner(self, job: Job) -> Runner:
        """Work out what the end of a job would cost, once."""
        known = self._runners.get(job.id)
        if known is None:
            leaf = leaf_of(self._tree, job)
            of_leaf = self._held_in(leaf)
            (pool, milli), ran_so = of_leaf.granted[job.id], of_leaf.ran[job.id]
            known = self._runners[job.id] = Runner(
                job,
                leaf,
                pool,
                milli * job.spec.tasks,
                Victim(job.id, _LAST, 0)
                if job.id in self._idle
                else Victim(job.id, job.priority, cost(ran_so, of_leaf.least_ms, self._restart_ms)),
                ran_so,
                of_leaf.least_ms,
                inf if job.started_at is None else job.started_at,
            )
        return known

    def _ran(self, job: Job, milli: int, now: float) -> Ran:
        return ran(job.started_at, job.checkpoint_at, now, milli, job.stopped)

    # --- who may be stopped

    def could_take(self, job: Job) -> bool:
        """Return whether any running job might be stopped, or moved, for a job; True where that takes a closer look."""
        return not self._tree.is_flat or job.priority > self._lowest_priority

    @cached_property
    def _lowest_priority(self) -> int:
        return min((other.priority for other in self._running.values()), default=HIGHEST_PRIORITY)

    def kind(self, job: Job) -> Hashable:
        """Jobs of one kind may take the same from the same."""
        seat = self._seating.given.get(job.id)
        own = job.spec.queue, job.priority, self._attained.rank(job)
        return (
            (*own, seat.pool) if seat is not None else (*own, job.spec.gpu_model, job.spec.gpu_milli_in_all)
        )

    def victims_of(self, job: Job) -> dict[JobId, Victim]:
        """All that may be stopped for a job that waits."""
        return self._all_of(job, self.asked_for(job).get)

    def asked_for(self, job: Job) -> "Victims":
        """All that may be stopped for a job that waits: the rule is asked of one when somebody looks at him."""
        kind = self.kind(job)
        known = self._known.setdefault(kind, {})
        self.moments |= self._later.setdefault(kind, set())  # also of one whose like was looked at before
        return Victims(self._running, known, partial(self._ask, job, self._later[kind]))

    def takes_from(self, job: Job) -> dict[JobId, Victim]:
        """All that may be stopped for a job that runs, and is to start again elsewhere."""
        return self._all_of(job, lambda job_id: self._victim(job, self._running[job_id]))

    def _all_of(self, job: Job, ask: Callable[[JobId], Victim | None]) -> dict[JobId, Victim]:
        """Ask of all that run, unless their queue says it of all of them at once."""
        leaf, seated = leaf_of(self._tree, job), self._seating.seat_for(job) is not None
        whose = self._tree.queues[leaf].resolved.reclaim
        victims: dict[JobId, Victim] = {}
        for path, jobs in self._leaves.items():
            protected_s = self._bar(leaf, path, seated=seated)
            if path != leaf and (protected_s >= LONGEST_S or not job.spec.gpus):
                continue
            if seated and path != leaf and whose is not Whose.LOWER:
                victims |= self._unprotected(path, protected_s)
            else:
                each = ((other.id, ask(other.id)) for other in jobs if other.id in self._running)
                victims |= {job_id: victim for job_id, victim in each if victim is not None}
        for job_id in self._idle:
            if job_id not in victims and (victim := ask(job_id)) is not None:
                victims[job_id] = victim
        return {job_id: victim for job_id, victim in victims.items() if job_id in self._running}

    def _ask(self, job: Job, later: set[float], other: Job) -> Victim | None:
        """`_victim`; when he may be stopped later is on record for all jobs of that kind."""
        noted, self.moments = self.moments, set()
        victim = self._victim(job, other)
        later |= self.moments
        self.moments |= noted
        return victim

    def _victim(self, job: Job, other: Job) -> Victim | None:
        """What it costs to stop another for a job; None: that may not be done."""
        leaf, path = leaf_of(self._tree, job), leaf_of(self._tree, other)
        if other.id in self._idle:
            return self._runner(other).victim if self._may_return(job, leaf, path) else None
        if path == leaf and self._is_before(job, other):
            return self._below(job, self._runner(other)).victim
        if other.seat is not None or not job.spec.gpus:
            return None
        seated = self._seating.seat_for(job) is not None
        protected_s = self._bar(leaf, path, seated=seated)
        each = self._runner(other)
        if protected_s >= LONGEST_S or not each.milli:
            return None
        return each.victim if self._gives(job, each, protected_s, seated=seated) else None

    def _may_return(self, job: Job, leaf: str, path: str) -> bool:
        """Whether idle GPUs of a leaf's job may be returned for a job."""
        queue = self._tree.queues[leaf]
        never = queue.resolved.reclaim is Whose.NEVER or self._tree.is_fenced(queue, self._tree.queues[path])
        return bool(job.spec.gpus) and not never

    def is_idle(self, job_id: JobId) -> bool:
        """Whether a job ends because its GPUs do nothing."""
        return job_id in self._idle

    def _bar(self, leaf: str, path: str, *, seated: bool) -> float:
        """How long borrowers of a leaf run before they may be stopped for one of another; `LONGEST_S`: for ever."""
        key = leaf, path, seated
        known = self._bars.get(key)
        if known is None:
            queue, other = self._tree.queues[leaf], self._tree.queues[path]
            never = queue.resolved.reclaim is Whose.NEVER or self._tree.is_fenced(queue, other)
            barred = never or (path == leaf and not seated)
            known = self._bars[key] = LONGEST_S if barred else self._protected_s(queue, other, seated=seated)
        return known

    def every(self) -> Mapping[JobId, Victim]:
        """All that run, and may be stopped for somebody."""
        return Victims(self._running, self._costs, lambda other: self._runner(other).victim)

    def movable(self, job: Job, *, seated: bool) -> dict[JobId, Victim]:
        """Who may go elsewhere for a job that waits: of one task and smaller than it, not across a fence, not within
        `MOVED_AGAIN_S` of having made room, and as its queue's `reclaim` says.

        Args:
            job: It.
            seated: Those who have a seat, as it has; False: those who borrow, as it would.
        """
        queue = self._tree.queues[leaf_of(self._tree, job)]
        victims: dict[JobId, Victim] = {}
        for path, jobs in self._leaves.items() if not self._tree.is_flat else ():
            owner = self._tree.queues[path]
            if queue.resolved.reclaim is Whose.NEVER or self._tree.is_fenced(queue, owner):
                continue
            least_s = self._protected_s(queue, owner, seated=True)
            for other in jobs:
                if (other.seat is not None) is seated and self._may_move(job, other, queue, least_s):
                    victims[other.id] = self._runner(other).victim
        return victims

    def _may_move(self, job: Job, other: Job, queue: Queue, least_s: float) -> bool:
        spec, lower = other.spec, queue.resolved.reclaim is Whose.LOWER
        if not spec.gpus or spec.tasks != 1 or spec.is_share or spec.ports or other.id not in self._running:
            return False
        if other.id in self._idle:
            return False  # it ends
        if spec.counted_milli >= job.spec.counted_milli * job.spec.tasks or other.started_at is None:
            return False
        if (lower and other.priority >= job.priority) or (
            spec.queue == job.spec.queue and other.priority > job.priority
        ):
            return False
        made_room = (
            task for task in self._turn.state.work.tasks_of(other.id) if task.preempted_for is not None
        )
        again_at = max((task.ended_at or inf for task in made_room), default=-inf) + MOVED_AGAIN_S
        until = max(other.started_at + least_s, other.spared_until, again_at)
        if other.seat is not None and until > self._turn.now:
            self.note(until)
        return until <= self._turn.now

    def _gives(self, job: Job, each: Runner, protected_s: float, *, seated: bool) -> bool:
        lower = self._tree.queues[leaf_of(self._tree, job)].resolved.reclaim is Whose.LOWER
        if lower and each.victim.priority >= job.priority:
            return False
        if self._stands_before(each, job) or (not seated and not self._may_take(job, [each])):
            return False
        return not self._is_protected(each, protected_s)

    def _unprotected(self, leaf: str, protected_s: float) -> Mapping[JobId, Victim]:
        """Who has no seat, and gives to whoever has one in another queue: looked up once."""
        known = self._open.get((leaf, protected_s))
        if known is None:
            noted, self.moments = self.moments, set()
            line = [self._runner(job) for job in self._leaves[leaf] if job.seat is None]
            there = (each for each in line if each.milli and not self._is_protected(each, protected_s))
            known = {each.job.id: each.victim for each in there}, frozenset(self.moments)
            self._open[leaf, protected_s], self.moments = known, noted
        self.moments |= known[1]
        return known[0]

    def _stands_before(self, each: Runner, job: Job) -> bool:
        """Whether one that runs would in turn have a waiting job of its own queue ended: then each ended the other."""
        if leaf_of(self._tree, each.job) != leaf_of(self._tree, job):
            return False
        if self._attained.orders(job):
            return self._attained.rank(each.job) < self._attained.rank(job)
        return each.victim.priority > job.priority

    def _is_before(self, job: Job, each: Job) -> bool:
        """Whether a job comes before one of its own queue, be that one seated or not."""
        if each.priority < job.priority or self._attained.gives_way(each, job):
            return True
        if self._attained.orders(job):
            self.note(self._attained.moves_at(each))
        return False

    def _below(self, job: Job, each: Runner) -> Runner:
        """A job of its own queue; of those that have had more service who stands last goes first, else each who is
        ended has the next before him ended."""
        if not self._attained.gives_way(each.job, job):
            return each
        last = replace(each.victim, priority=-HIGHEST_PRIORITY - 1 - self._attained.level(each.job))
        return replace(each, victim=last)

    def _protected_s(self, queue: Queue, other: Queue, *, seated: bool) -> float:
        """How long jobs of another queue run before they may be stopped for one."""
        theirs = other.path if queue.path == other.path else meeting(queue.path, other.path)[1]
        least = self._tree.queues[theirs].resolved.min_runtime_s
        return least.reclaim_s if seated else least.rebalance_s

    def _is_protected(self, each: Runner, protected_s: float) -> bool:
        until = max(each.started_at + protected_s if protected_s else 0.0, each.job.spared_until)
        if until <= self._turn.now:
            return False
        self.note(until)
        return True

    def protection_of(self, job: Job, victim: Victim) -> tuple[float, str]:
        """Until when a borrower was or is not stopped for a job, seconds since the epoch, and after what it is then."""
        if victim.job_id in self._idle:
            return 0.0, ""
        each, seated = self._runners[victim.job_id], self._seating.seat_for(job) is not None
        mine, theirs = (self._tree.queues[path] for path in (leaf_of(self._tree, job), each.leaf))
        protected_s = self._protected_s(mine, theirs, seated=seated) if each.job.seat is None else 0.0
        if protected_s and each.started_at + protected_s >= each.job.spared_until:
            return each.started_at + protected_s, "its minimum run time"
        return each.job.spared_until, "the time that it was given when the queues changed"

    def note(self, moment: float) -> None:
        """Look again then."""
        self.moments.add(moment)

    # --- between borrowers

    def together(self, job: Job) -> Callable[[Sequence[Victim]], bool] | None:
        """The rule for victims that are stopped together; None: each may be stopped with any."""
        if self._seating.seat_for(job) is not None:
            return None
        return lambda chosen: self._may_take(job, [self._runners[victim.job_id] for victim in chosen])

    def _may_take(self, job: Job, chosen: Sequence[Runner]) -> bool:
        """Whether a job without a seat may take what borrowers of other queues hold."""
        leaf, held = leaf_of(self._tree, job), self._backlog.held
        freed: dict[tuple[str, str, str], int] = {}
        for each in chosen:
            if each.leaf != leaf and each.job.id not in self._idle:
                mine, theirs = meeting(leaf, each.leaf)
                freed[mine, theirs, each.pool] = freed.get((mine, theirs, each.pool), 0) + each.milli
        for (mine, theirs, pool), milli in freed.items():
            taker, giver = self._side(mine, pool), self._side(theirs, pool)
            if not stays_below(taker, held.cost_of(job, pool), giver, milli):
                return False
        return True

    def _side(self, path: str, pool: str) -> Side:
        """What a queue holds when all plans that there are have come true, and what it is due."""
        held = self._backlog.held
        return Side(held.amount(path, pool) + self._to_come[path, pool], self._shares.due(path, pool))

    @cached_property
    def _to_come(self) -> Counter[tuple[str, str]]:
        """What queues hold more when those that are told to end have ended, and those that wait for it run."""
        state, sums = self._turn.state, Counter[tuple[str, str]]()
        givers: dict[JobId, Job] = {}
        for task_id in state.work.live:
            task = state.work.tasks[task_id]
            job = state.work.current(task)
            if job is not None and task.preempted_for is not None and job.room_made_at is None:
                givers[job.id] = job  # who goes elsewhere holds there what he holds
        for job in givers.values():
            pool, milli = self._seating.ground.granted(job)
            self._come(sums, job, pool, -milli * job.spec.tasks)
        for _, job_id in state.work.queue:
            job = state.work.jobs[job_id]
            if job.room_made_at is not None:
                self._come(sums, job, *self._wanted(job))
        return sums

    def _come(self, sums: Counter[tuple[str, str]], job: Job, pool: str, milli: int) -> None:
        for path in lineage(leaf_of(self._tree, job)):
            sums[path, pool] += milli

    def _wanted(self, job: Job) -> tuple[str, int]:
        """The pool where a waiting job would be, that of its room if there is any, and what it would hold there."""
        seat = self._seating.seat_for(job)
        if seat is not None:
            return seat.pool, seat.milli * job.spec.tasks
        room = {
            self.pool_of(agent_id) for agent_id in job.room_on if agent_id in self._turn.state.cluster.nodes
        }
        wants = self._seating.ground.wants(job) or ((DEFAULT_POOL, job.spec.counted_milli),)
        pool, milli = next((want for want in wants if want[0] in room), wants[0])
        return pool, milli * job.spec.tasks

    # --- how long somebody waits first

    def has_waited(self, job: Job, chosen: Sequence[Victim]) -> bool:
        """Whether a job's wait has cost as much as the work that is lost by a plan, as its queue weighs the two."""
        until = self.is_patient_until(job, chosen)
        if until <= self._turn.now:
            return True
        self.note(until)
        return False

    def is_patient_until(self, job: Job, chosen: Sequence[Victim]) -> float:
        """When a job's wait has cost as much as the work that is lost by a plan, seconds since the epoch.

        What counts is the work that was at stake when it began to wait: what runs on loses more each second, and who
        waits for it would wait for ever.
        """
        patience = self._tree.queues[leaf_of(self._tree, job)].resolved.patience
        since = waits_since(self._turn.state, job)
        if not patience:
            return 0.0
        at_stake = 0
        for each in (self._runners[victim.job_id] for victim in chosen if victim.job_id not in self._idle):
            then = self._ran(each.job, each.milli, max(since, min(each.started_at, self._turn.now)))
            at_stake += cost(then, min(each.least_ms, then.since_start_ms), self._restart_ms)
        return since + patience * at_stake / max(self._wanted(job)[1], 1)

    # --- plans

    def planned(self, chosen: Sequence[Victim]) -> None:
        """Stop nobody twice."""
        for victim in chosen:
            del self._running[victim.job_id]

    def forget_plans(self) -> None:
        """What plans move is found in the state anew."""
        self.__dict__.pop("_to_come", None)

    def pool_of(self, agent_id: AgentId) -> str:
        """The pool that a node is in."""
        return self._seating.ground.pool_of(self._turn.state.cluster.nodes[agent_id])

    def pool_where(self, job_id: JobId) -> str:
        """The pool where a job runs that may be stopped for somebody."""
        return self._runners[job_id].pool

    def serves(self, job: Job, agent_id: AgentId) -> bool:
        """Whether a node is of the pool where a job has its seat; one that has none may go anywhere."""
        seat = self._seating.seat_for(job)
        return seat is None or self.pool_of(agent_id) == seat.pool

    def yields_to(self, job: Job) -> Callable[[JobId], bool]:
        """Whether what is kept for another job that waits is not kept from one: nobody was stopped for the other, it
        has no seat, and this one has, or is of another queue."""
        seated, leaf = self._seating.seat_for(job) is not None, job.spec.queue

        def yields(job_id: JobId) -> bool:
            other = self._turn.state.work.jobs[job_id]
            if other.room_made_at is not None or self._seating.is_guaranteed(other):
                return False
            return seated or other.spec.queue != leaf

        return yields

    def reclaims(self, job: Job, victim: Victim) -> bool:
        """Whether a job takes from another by what queues are owed, and not by its priority."""
        runner = self._runners[victim.job_id]
        return runner.leaf != leaf_of(self._tree, job) or not self._is_before(job, runner.job)

    def why_elsewhere(self, job: Job, victim: Victim, hostname: str) -> str:
        """What a job is told that goes elsewhere, so that another has room on one node."""
        lost = self._lost(victim)
        return f"goes to {hostname}, so that job {job.id} has room on one node; it loses {lost} of work"

    def _lost(self, victim: Victim) -> str:
        """What is lost with it, in words: GPU hours."""
        runner = self._runners[victim.job_id]
        hours = lost_milli_s(runner.ran, runner.least_ms, self._restart_ms) / 3_600_000
        return f"{hours:.0f} GPU-h" if hours >= _WHOLE_H else f"{hours:.3g} GPU-h"

    def why(self, job: Job, victim: Victim) -> str:
        """What a job is told that makes room: for whom, by which rule, and what it loses."""
        runner = self._runners[victim.job_id]
        seat = self._seating.seat_for(job)
        if not self.reclaims(job, victim):
            rule = f"whose priority is {job.priority}, not {runner.job.priority}"
            if runner.job.priority >= job.priority:
                rule = f"which has had less GPU time in queue {job.spec.queue}"
        elif seat is not None:
            rule = f"for which queue {seat.queue} is guaranteed GPUs that it had borrowed"
        else:
            rule = f"whose queue {job.spec.queue} has less of what it is due than {runner.leaf}, and still will have"
        return f"makes room for job {job.id}, {rule}; it loses {self._lost(victim)} of work"
