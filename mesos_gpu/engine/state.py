"""All that the scheduler knows. Only `step` changes it, on one thread."""

import bisect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mesos_gpu.engine.books import Books, books_of
from mesos_gpu.engine.indexes.agents import Agents, agents_of, latest_last
from mesos_gpu.engine.indexes.arrays import Members
from mesos_gpu.engine.indexes.hours import HoursNow
from mesos_gpu.engine.indexes.memory import Capacity, Reconciliation, Roles, SecretRead, Unreserved, Use
from mesos_gpu.engine.indexes.restless import Restless
from mesos_gpu.engine.indexes.work import GpuWork
from mesos_gpu.errors import NotFound
from mesos_gpu.model.access.document import NO_DOCUMENT, AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, RootVersion
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owners
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.nodes.roll import Rolls
from mesos_gpu.model.past_use import PastUse
from mesos_gpu.model.saves import NOUN_OF, NOUNS, Saved, dict_key, key_of
from mesos_gpu.model.seat import Seat
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.event import JobEvent, recent
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import NO_QUEUES, QueueDocument
from mesos_gpu.model.usage import BudgetUse, Span, SpanWork
from mesos_gpu.policy.queueing.launch_window import Window
from mesos_gpu.policy.queueing.queue import in_line_since
from mesos_gpu.policy.tasks.events import remembered
from mesos_gpu.policy.tenancy.tree import Tree

DERIVED: Final = MappingProxyType({"derived": True})  # a field that no snapshot has


def _in_journal(name: str) -> Mapping[str, str]:
    """Metadata of a field that journals, of earlier versions too, have under another name."""
    return {"journal": name}


@dataclass(slots=True)
class State:
    """The engine's state; everything below `offers` is derived or lasts only as long as the process."""

    started_at: float
    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    nodes: dict[AgentId, Node] = field(default_factory=dict)
    framework_id: str | None = None
    drains: dict[tuple[Target, str], Drain] = field(default_factory=dict)
    cards: dict[GpuId, Card] = field(default_factory=dict)
    catalog: AppCatalog = field(default_factory=AppCatalog, metadata=_in_journal("services"))
    app_versions: dict[str, list[AppVersion]] = field(default_factory=dict)  # by app, oldest first
    roots: list[RootVersion] = field(default_factory=list)  # the tree of groups as it was, oldest first
    deployments: dict[str, Deployment] = field(default_factory=dict)
    splits: dict[str, TrafficSplit] = field(default_factory=dict)  # named services, by name
    access_versions: dict[int, AccessDocument] = field(default_factory=dict)  # oldest first
    queue_versions: dict[int, QueueDocument] = field(default_factory=dict)  # oldest first
    past_uses: dict[tuple[str, str], PastUse] = field(default_factory=dict)  # by queue and user
    spans: dict[TaskId, Span] = field(default_factory=dict)  # what each task holds of GPUs, and since when
    # What those GPUs did, as far as summed up.
    span_works: dict[TaskId, SpanWork] = field(default_factory=dict)
    budget_uses: dict[tuple[str, str, int], BudgetUse] = field(default_factory=dict)  # by its key
    tokens: dict[str, Token] = field(default_factory=dict)  # by id
    arrays: dict[JobId, JobArray] = field(default_factory=dict)
    idlenesses: dict[JobId, Idleness] = field(default_factory=dict)
    bookings: dict[str, Booking] = field(default_factory=dict)  # by id
    doubtful: bool = False  # nothing is launched before the master's tasks are known

    offers: dict[OfferId, Offer] = field(default_factory=dict)
    connected: bool = False
    registered_at: float = 0.0
    master_url: str = ""
    queue: list[tuple[int, JobId]] = field(default_factory=list)  # pending jobs, sorted
    launches: dict[JobId, tuple[TaskId, ...]] = field(default_factory=dict)
    holders: dict[GpuId, TaskId] = field(default_factory=dict)  # of whole cards
    sharers: dict[GpuId, dict[TaskId, Share]] = field(default_factory=dict)  # of cards that are shared
    # By shared card, the task that holds it in Mesos.
    covers: dict[GpuId, TaskId] = field(default_factory=dict)
    idle: dict[GpuId, float] = field(default_factory=dict)  # cards held for shares: since when for none
    uncovered: dict[GpuId, float] = field(default_factory=dict)  # shared, held in Mesos by none: since when
    # Of the tasks that shall hold an agent's shared cards: how many in a row, and until when none is launched.
    keeper_failures: dict[AgentId, tuple[int, float]] = field(default_factory=dict)
    gone_covers: dict[TaskId, None] = field(default_factory=dict)  # held shared cards; the latest to end
    windows: dict[AgentId, Window] = field(default_factory=dict)  # launch windows of agents
    keepers: int = 0  # tasks and executors of those, ever: their ids never come again
    monitors: int = 0  # launches of node monitors, ever: their ids never come again
    rolls: Rolls = field(default_factory=Rolls)
    reserve_from: float = 0.0  # until then nothing is reserved: the master refused it
    # Of agents whose reservations were given back, and that have not offered anything without them since.
    unreserved: dict[AgentId, Unreserved] = field(default_factory=dict)
    live: dict[TaskId, None] = field(default_factory=dict)  # tasks that have not ended, in launch order
    unknown: dict[TaskId, None] = field(default_factory=dict)  # of these: they wait for an operator's word
    listing_at: float = 0.0  # when the master was last asked for its tasks
    ended: dict[JobId, None] = field(default_factory=dict)  # ended jobs, oldest first
    contested: dict[GpuId, float] = field(default_factory=dict)  # refused claims: leave alone until then
    instances: dict[str, dict[JobId, None]] = field(default_factory=dict)  # by app: jobs that have not ended
    places: dict[str, tuple[int, float]] = field(default_factory=dict)  # by app: of its first instance
    # Not looked at since they changed, or ended.
    changed_apps: set[str] = field(default_factory=set, metadata=_in_journal("stirred"))
    ended_instances: list[JobId] = field(default_factory=list, metadata=_in_journal("fallen"))
    vacant: dict[str, list[JobId]] = field(default_factory=dict)  # by app: ended instances to come back
    # By app and its `last_config_change_at`: failures in a row, and until when.
    backoffs: dict[tuple[str, float], tuple[int, float]] = field(default_factory=dict)
    healths: dict[TaskId, bool | None] = field(default_factory=dict)  # by the scheduler's own checks
    check_results: dict[TaskId, tuple[CheckHealth, ...]] = field(default_factory=dict)  # of each of those
    readiness: dict[TaskId, Readiness] = field(default_factory=dict)  # what was found last
    looked_at_apps: float = 0.0  # all of them
    released: dict[TaskId, float] = field(default_factory=dict)  # when a member was last told to start
    # The number of the notice that an executor was last sent, and when.
    notified: dict[TaskId, tuple[int, float]] = field(default_factory=dict)
    resets: dict[GpuId, None] = field(default_factory=dict)  # cards whose reset has no answer yet
    gpu_work: GpuWork = field(default_factory=GpuWork)  # of tasks, as far as reports tell
    capacities: dict[AgentId, Capacity] = field(default_factory=dict)
    uses: dict[tuple[str, str], Use] = field(default_factory=dict)  # by "user" or "queue" and its name
    sizes: dict[JobId, int] = field(default_factory=dict)  # bytes of each job that is no app's instance
    secrets: dict[str, SecretRead] = field(default_factory=dict)  # by source; those that jobs wait for
    members: Members = field(default_factory=Members)  # of arrays
    roles: Roles = field(default_factory=Roles)  # of Mesos, that the scheduler has
    role_asked_at: float = -1e12  # never
    next_sequence: int = 1
    suppressed: bool = False
    unmatched: bool = True  # something has changed since the last match that may let a job start
    matched_at: float = 0.0
    tended_at: float = 0.0  # all tasks were looked at
    hours_at: float = 0.0  # by which the hours of queues were looked at
    drawn: int = 0  # tasks of jobs, ever: draws lots between nodes that are as good
    idle_since: float | None = None
    swept_at: float = 0.0
    tokens_swept_at: float = 0.0
    past_uses_swept_at: float = 0.0
    folded_day: int = 0  # of UTC since the epoch: records that ended before it were summed up
    reconciliation: Reconciliation | None = None
    reconciled_at: float = 0.0

    # Updates since the start that were not believed.
    disbelieved: int = field(default=0, compare=False, metadata=DERIVED)

    #: By job, the launches that were told to make room for it, be they recalled or not.
    made_room: dict[JobId, dict[TaskId, None]] = field(default_factory=dict, compare=False, metadata=DERIVED)
    events: deque[JobEvent] = field(default_factory=recent, compare=False, repr=False, metadata=DERIVED)

    # What follows from the rest, and is made again when it is missing: a `table.Table`, or None.
    table: Any = field(default=None, compare=False, metadata=DERIVED)
    # `policy.verdicts.Known`, and the agents that were touched since the table was made.
    verdicts: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, metadata=DERIVED)
    touched: set[AgentId] = field(default_factory=set, compare=False, metadata=DERIVED)

    made_agents: Agents | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    made_restless: Restless | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    made_books: Books | None = field(default=None, compare=False, metadata=DERIVED)
    next_moment: float = field(default=inf, compare=False, metadata=DERIVED)  # a protection or patience ends
    made_hours: HoursNow | None = field(default=None, compare=False, metadata=DERIVED)  # as of `hours`
    seats_given: Mapping[JobId, Seat] = field(
        default_factory=dict, compare=False, repr=False, metadata=DERIVED
    )
    # The latter: to jobs that wait, by the latest match. Then `queue.leaves.Leaves` and `charges.Charges`, None while
    # nobody has asked, and what has changed since for each.
    leaves: Any = field(default=None, compare=False, repr=False, metadata=DERIVED)
    moved_jobs: set[JobId] = field(default_factory=set, compare=False, repr=False, metadata=DERIVED)
    charges: Any = field(default=None, compare=False, repr=False, metadata=DERIVED)
    uncharged: set[TaskId] = field(default_factory=set, compare=False, repr=False, metadata=DERIVED)

    # `booked.Provisional`.
    provisional: Any = field(default=None, compare=False, repr=False, metadata=DERIVED)
    budget_book: Any = field(default=None, compare=False, repr=False, metadata=DERIVED)  # a `Book`, or None
    spans_seen: bool = field(default=False, compare=False, metadata=DERIVED)  # of what it was restored with
    #: By agent, the latest offer of which nothing was used, be it given back by now; for those who ask why.
    unused: dict[AgentId, Offer] = field(default_factory=dict, compare=False, metadata=DERIVED)

    @classmethod
    def restored(cls, started_at: float, saved: Saved) -> "State":
        """The state from what was saved."""
        state = cls(started_at=started_at, framework_id=saved.framework_id, doubtful=saved.doubtful)
        for noun in NOUNS:
            values = getattr(saved, noun.plural)
            for value in values if noun.key else (values,):
                state.put(value)
        state.ended_instances.clear()
        state.events.extend(remembered(state.jobs.values(), state.tasks.values()))
        return state

    @property
    def access(self) -> AccessDocument:
        """Who may do what: the latest version."""
        return next(reversed(self.access_versions.values()), NO_DOCUMENT)

    @property
    def queues(self) -> QueueDocument:
        """The tree of queues: the latest version, of version 0 while nobody has written one."""
        return next(reversed(self.queue_versions.values())) if self.queue_versions else NO_QUEUES

    @property
    def tree(self) -> Tree:
        """Tree that `queues` describes, with the figures of the current hours."""
        return self.hours.tree

    @property
    def hours(self) -> HoursNow:
        """The latest document as it is at `hours_at`."""
        if self.made_hours is None or self.made_hours.written is not self.queues:
            self.made_hours = HoursNow(self.queues, self.hours_at or self.started_at)
        return self.made_hours

    @property
    def books(self) -> Books:
        """Sums over jobs and past use. Whoever has no tree of queues has no need of them."""
        if self.made_books is None:
            self.made_books = books_of(self.jobs.values(), self.past_uses.values())
            for array in self.arrays.values():
                self._wait_in(array)
        return self.made_books

    @property
    def agents(self) -> Agents:
        """Agents by what a step looks for."""
        if self.made_agents is None:
            self.made_agents = agents_of(self.nodes.values(), self.offers.values(), self.tasks.values())
        return self.made_agents

    @property
    def restless(self) -> Restless:
        """Live tasks by what is looked for among them."""
        if self.made_restless is None:
            self.made_restless = Restless()
            for task in map(self.tasks.__getitem__, self.live):
                self.made_restless.enter(task, self._job_of(task))
        return self.made_restless

    def put(self, value: Any) -> None:
        """Take in a value of a noun that is saved, in the place of the one with its key."""
        kind = type(value)
        if kind in _PUT:
            getattr(self, _PUT[kind])(value)
        elif NOUN_OF[kind].key:
            getattr(self, NOUN_OF[kind].plural)[dict_key(key_of(value))] = value
        else:
            setattr(self, NOUN_OF[kind].plural, value)

    def drop(self, kind: type[Any], *key: Any) -> None:
        """Forget the value of a noun that has that key."""
        if kind in _DROP:
            getattr(self, _DROP[kind])(*key)
        else:
            del getattr(self, NOUN_OF[kind].plural)[dict_key(key)]

    def hold_offer(self, offer: Offer) -> None:
        """Put an offer on the table."""
        self.agents.hold(offer)
        self.offers[offer.id] = self.unused[offer.agent_id] = offer
        self.touched.add(offer.agent_id)

    def drop_offer(self, offer_id: OfferId) -> None:
        """Drop an offer that is used, given back or void; one that is not there is dropped already."""
        offer = self.offers.pop(offer_id, None)
        if offer is not None:
            self.agents.drop(offer)
            self.touched.add(offer.agent_id)

    def drop_offers(self) -> None:
        """All of them are void."""
        self.offers.clear()
        self.agents.drop_all()
        self.table = None

    def set_node(self, node: Node) -> None:
        """Put a node in."""
        self.agents.enter(self.nodes.get(node.id), node)
        self.nodes[node.id] = node

    def drop_node(self, agent_id: AgentId) -> None:
        """Forget a node that has been lost for long."""
        self.agents.enter(self.nodes.pop(agent_id), None)
        for known in (self.capacities, self.unreserved, self.windows):
            known.pop(agent_id, None)

    def set_past_use(self, use: PastUse) -> None:
        """Put in what a user of a leaf has used."""
        self.past_uses[use.queue, use.user] = use
        if self.made_books is not None:
            self.made_books.enter_use(use)

    def drop_past_use(self, queue: str, user: str) -> None:
        """Forget what a user of a leaf has used."""
        del self.past_uses[queue, user]
        if self.made_books is not None:
            self.made_books.drop_use(queue, user)

    def set_job(self, job: Job) -> None:
        """Put a job in, and keep the queue and the list of ended jobs true."""
        old = self.jobs.get(job.id)
        if self.made_books is not None:
            self.made_books.enter_job(old, job)
        self.jobs[job.id] = job
        self.next_sequence = max(self.next_sequence, job.sequence + 1)
        was, now = old is not None and old.state is JobState.PENDING, job.state is JobState.PENDING
        if self.leaves is not None and (was or now):
            self.moved_jobs.add(job.id)
        if now and not was:
            bisect.insort(self.queue, (job.sequence, job.id))
        elif was and not now:
            del self.queue[bisect.bisect_left(self.queue, (job.sequence, job.id))]
        if old is None or old.kill_requested != job.kill_requested or old.spec is not job.spec:
            for task_id in self.launches.get(job.id, ()):
                if task_id in self.live:
                    self.restless.enter(self.tasks[task_id], job)
        if self.charges is not None:
            self.uncharged.update(id_ for id_ in self.launches.get(job.id, ()) if id_ in self.live)
        if job.state.ended:
            self.ended.setdefault(job.id)
        self._set_member(job)
        if job.app_version is not None:
            self._set_instance(job)
        elif old is None or now is not was:
            self._count(job, new=old is None, pending=now - was)

    def set_array(self, array: JobArray) -> None:
        """Put an array in; its tasks that wait without a job count as jobs that do."""
        old, self.arrays[array.id] = self.arrays.get(array.id), array
        self.next_sequence = max(self.next_sequence, array.sequence + array.indexes.count)
        self._count(array, new=old is None)
        self._recount(array.id)

    def drop_array(self, array_id: JobId) -> None:
        """Forget an array that has ended."""
        array = self.arrays.pop(array_id)
        self.members.drop_array(array_id)
        self._count(array, gone=True)

    def draft(self, array: JobArray, position: int) -> Job:
        """Make a job of an array that no store has, for it to stand in the queue."""
        job = array.member(position)
        self.members.drafts.setdefault(array.id, {})[job.id] = position
        self.set_job(job)
        return job

    def drop_draft(self, job: Job) -> None:
        """Undo that."""
        assert job.array is not None, f"{job.id} is no member of an array"
        self.members.drop_draft(job.array, job.id)
        self.set_job(replace(job, state=JobState.KILLED))
        self.forget_job(job.id)
        self.seats_given = {each: seat for each, seat in self.seats_given.items() if each != job.id}

    def _set_member(self, job: Job) -> None:
        if job.array is not None:
            self.members.enter_job(job)
            self._recount(job.array)

    def _recount(self, array_id: JobId) -> None:
        array = self.arrays.get(array_id)
        if array is not None:
            self._count(array, pending=self.members.enter_array(array))
            self._wait_in(array)

    def _wait_in(self, array: JobArray) -> None:
        if self.made_books is not None:
            members = self.members
            self.made_books.enter_array(array, members.unmade.get(array.id, 0), members.startable(array))

    def _count(self, job: Job | JobArray, *, new: bool = False, pending: int = 0, gone: bool = False) -> None:
        size = len(msgspec.json.encode(job.spec)) if new else 0
        if new:
            self.sizes[job.id] = size
        size = -self.sizes.pop(job.id, 0) if gone else size
        for key in owners(job.spec, job.owner):
            use = self.uses.setdefault(key, Use())
            use.pending, use.size = use.pending + pending, use.size + size
            if use == Use():
                del self.uses[key]

    def _set_instance(self, job: Job) -> None:
        app_id = job.app_id
        place = job.sequence, in_line_since(job)
        self.places[app_id] = min(self.places.get(app_id, place), place)
        here = self.instances.setdefault(app_id, {})
        self.changed_apps.add(app_id)
        if not job.state.ended:
            here.setdefault(job.id)
        elif job.id in here:
            del here[job.id]
            self.ended_instances.append(job.id)
        if not here:
            del self.instances[app_id]

    def set_app_version(self, version: AppVersion) -> None:
        """Put an app's version in, in its place by time: an undone change brings an earlier one back."""
        known = [v for v in self.app_versions.get(version.app.id, ()) if v.version != version.version]
        bisect.insort(known, version, key=lambda each: each.version)
        self.app_versions[version.app.id] = known

    def drop_app_version(self, app_id: str, version: float) -> None:
        """Forget a version of an app."""
        left = [each for each in self.app_versions[app_id] if each.version != version]
        if left:
            self.app_versions[app_id] = left
        else:
            del self.app_versions[app_id]

    def set_root_version(self, root: RootVersion) -> None:
        """Put the tree of groups in, as it is now."""
        self.roots = [*self.roots, root]

    def drop_root_version(self, version: float) -> None:
        """Forget a tree of groups."""
        self.roots = [each for each in self.roots if each.version != version]

    def set_task(self, task: Task) -> None:
        """Put a task in, and keep holders and the live set true."""
        old = self.tasks.get(task.id)
        if old is None and task.job_id is not None:
            self.launches[task.job_id] = (*self.launches.get(task.job_id, ()), task.id)
        self.tasks[task.id] = task
        if old is None or old.state is not task.state or task.job_id is not None or task.covers is not None:
            self.touched.add(
                task.agent_id
            )  # not by the next report of a monitor: of ten thousand come a thousand a second
        if task.preempted_for is not None:
            self.made_room.setdefault(task.preempted_for, {})[task.id] = None
        if self.charges is not None:
            self.uncharged.add(task.id)
        if task.unknown is None or task.ended:
            self.unknown.pop(task.id, None)
        else:
            self.unknown.setdefault(task.id)
        if task.ended:
            self.live.pop(task.id, None)
            self.restless.leave(task.id)
            self.agents.free_ports(task)
            self.released.pop(task.id, None)
            self.notified.pop(task.id, None)
            for results in (self.healths, self.check_results, self.readiness, self.gpu_work.counts):
                results.pop(task.id, None)
            self._let_go(task)
        else:
            self.live.setdefault(task.id)
            self.restless.enter(task, self._job_of(task))
            self._hold(task)

    def _job_of(self, task: Task) -> Job | None:
        return self.jobs.get(task.job_id) if task.job_id else None

    def _hold(self, task: Task) -> None:
        share = task.counted_share
        for gpu in task.gpus:
            if share is None:
                self.holders[gpu] = task.id
            else:
                self.sharers.setdefault(gpu, {})[task.id] = share
        if task.covers is not None:
            self.covers[task.covers] = task.id

    def _let_go(self, task: Task) -> None:
        for gpu in task.gpus:
            if self.holders.get(gpu) == task.id:
                del self.holders[gpu]
            sharers = self.sharers.get(gpu, {})
            sharers.pop(task.id, None)
            if not sharers:
                self.sharers.pop(gpu, None)
        if task.covers is not None and self.covers.get(task.covers) == task.id:
            del self.covers[task.covers]

    def forget_task(self, task: Task) -> None:
        """Drop an ended one whose job does not exist."""
        del self.tasks[task.id]
        launches = self.launches.pop(task.job_id, ()) if task.job_id else ()
        others = tuple([task_id for task_id in launches if task_id != task.id])
        if task.job_id and others:
            self.launches[task.job_id] = others

    def set_card(self, card: Card) -> None:
        """Put a card in, and keep the list of resets true."""
        self.cards[card.id] = card
        if card.reset is None:
            self.resets.pop(card.id, None)
        else:
            self.resets.setdefault(card.id)

    def drain_of(self, hostname: str, gpu_id: GpuId | None = None) -> Drain | None:
        """What keeps new work off a node, or off one GPU there: its own drain, else the node's."""
        if not self.drains:
            return None
        own = self.drains.get((Target.GPU, gpu_id)) if gpu_id else None
        return own or self.drains.get((Target.NODE, hostname))

    def placed(self, on: Callable[[str], bool] | None = None) -> dict[GpuId, tuple[Node, Gpu]]:
        """Each GPU once, where it was reported last: an agent that registers anew leaves a lost node behind. `on`:
        whether those of a host are asked for, by its name; others are not looked at."""
        asked = [node for node in self.nodes.values() if on is None or on(node.hostname)]
        places = {gpu.id: (node, gpu) for node in sorted(asked, key=latest_last) for gpu in node.gpus}
        if on is None:
            return places
        return {id: place for id, place in places.items() if self.agents.latest(id, self.nodes) is place[0]}

    def place_of(self, gpu_id: GpuId) -> tuple[Node, Gpu] | None:
        """A GPU, and the node that reported it last; None: none did."""
        node = self.agents.latest(gpu_id, self.nodes)
        gpu = None if node is None else node.gpu(gpu_id)
        return None if node is None or gpu is None else (node, gpu)

    def known_gpu(self, gpu_id: GpuId) -> tuple[Node, Gpu]:
        """A GPU and where it is.

        Raises:
            NotFound: No node has reported it.
        """
        place = self.place_of(gpu_id)
        if place is None:
            raise NotFound(f"there is no GPU {gpu_id}", remedy="list the GPUs with: mesos-gpu gpus")
        return place

    def forget_job(self, job_id: JobId) -> None:
        """Drop an ended job and its tasks."""
        for task_id in self.launches.pop(job_id, ()):
            self.tasks.pop(task_id, None)
        job = self.jobs.pop(job_id, None)
        self.ended.pop(job_id, None)
        self.made_room.pop(job_id, None)
        self.idlenesses.pop(job_id, None)
        if job is not None:
            self._count(job, gone=True)

    def tasks_of(self, job_id: JobId) -> list[Task]:
        """Every launch of a job, oldest first."""
        return [self.tasks[task_id] for task_id in self.launches.get(job_id, ())]

    def holder(self, gpu_id: GpuId) -> Task | None:
        """The task that holds the GPU."""
        task_id = self.holders.get(gpu_id)
        return None if task_id is None else self.tasks[task_id]

    def tenants(self, gpu_id: GpuId) -> list[Task]:
        """The tasks that hold the GPU: one wholly, or any number shares of it."""
        whole = self.holder(gpu_id)
        shares = [self.tasks[task_id] for task_id in self.sharers.get(gpu_id, ())]
        return shares if whole is None else [whole, *shares]

    def current(self, task: Task) -> Job | None:
        """The job of whose latest launch this is."""
        job = self._job_of(task)
        if job is None:
            return None
        latest = task.launch == job.launches if task.launch else job.task_id == task.id
        return job if latest else None

    def round_of(self, job: Job) -> list[Task]:
        """The tasks of a job's latest launch, by rank."""
        if job.spec.tasks == 1:
            return [self.tasks[job.task_id]] if job.task_id else []
        tasks = (task for task in self.tasks_of(job.id) if task.launch == job.launches)
        return sorted(tasks, key=lambda task: task.rank)

    def holding_job(self, task: Task) -> Job | None:
        """The job for which a launch counts against its queue's limit: not one that was given up."""
        job = None if task.ended else self.current(task)
        return None if job is None or job.state is JobState.PENDING else job

    def counted_milli(self, task: Task, job: Job) -> int:
        """Thousandths of GPUs that a launch counts as in its queue's limit: what it may grow to is counted at once, and
        what it has until it has ended, though its job be wanted smaller then. A MIG instance, which may be larger than
        what was asked for, counts as that."""
        counted, share = job.spec.counted_milli, task.counted_share
        if share is None or share.method is Method.MIG:
            return counted
        return max(counted, len(task.gpus) * share.compute_milli)


#: Methods for nouns that are more than an entry of a dict by their key.
_PUT: Final[Mapping[type[Any], str]] = {
    Job: "set_job",
    JobArray: "set_array",
    Task: "set_task",
    Card: "set_card",
    Node: "set_node",
    PastUse: "set_past_use",
    AppVersion: "set_app_version",
    RootVersion: "set_root_version",
}
_DROP: Final[Mapping[type[Any], str]] = {
    PastUse: "drop_past_use",
    JobArray: "drop_array",
    AppVersion: "drop_app_version",
    RootVersion: "drop_root_version",
}
