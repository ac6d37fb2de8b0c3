"""State of the engine, composed of parts. Only `step` changes it, on one thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from mesos_gpu.engine.books import Books, books_of
from mesos_gpu.engine.indexes.leaves import Leaves
from mesos_gpu.engine.parts.apps import AppPart
from mesos_gpu.engine.parts.calendar import CalendarPart
from mesos_gpu.engine.parts.cluster import ClusterPart
from mesos_gpu.engine.parts.gpus import GpuPart
from mesos_gpu.engine.parts.ledger import LedgerPart
from mesos_gpu.engine.parts.match import MatchPart
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.parts.metadata import PART, parts_by_field
from mesos_gpu.engine.parts.quota import QuotaPart
from mesos_gpu.engine.parts.rights import RightsPart
from mesos_gpu.engine.parts.work import WorkPart
from mesos_gpu.model.apps.catalog import AppVersion, RootVersion
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Card
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import NOUN_OF, NOUNS, Saved, dict_key, key_of
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.tasks.events import remembered
from mesos_gpu.policy.tenancy.tree import Tree


@dataclass(slots=True)
class State:
    """State of the engine: its parts, and the changes that concern several of them.

    Attributes:
        started_at: Start of the scheduler process, in seconds since the epoch.
        work: Jobs and tasks.
        gpus: GPUs and the tasks that hold them.
        cluster: Nodes and offers.
        mesos: Relation to the Mesos master.
        apps: Apps and their instances.
        rights: Access document and tokens.
        quota: Queues and their use.
        ledger: Accounts and budgets.
        calendar: Bookings of GPUs.
        match: Progress of the match.
    """

    started_at: float
    work: WorkPart = field(default_factory=WorkPart, metadata=PART)
    gpus: GpuPart = field(default_factory=GpuPart, metadata=PART)
    cluster: ClusterPart = field(default_factory=ClusterPart, metadata=PART)
    mesos: MesosPart = field(default_factory=MesosPart, metadata=PART)
    apps: AppPart = field(default_factory=AppPart, metadata=PART)
    rights: RightsPart = field(default_factory=RightsPart, metadata=PART)
    quota: QuotaPart = field(default_factory=QuotaPart, metadata=PART)
    ledger: LedgerPart = field(default_factory=LedgerPart, metadata=PART)
    calendar: CalendarPart = field(default_factory=CalendarPart, metadata=PART)
    match: MatchPart = field(default_factory=MatchPart, metadata=PART)

    def __post_init__(self) -> None:
        """Take the start of the process as the time of the hours of queues, until they are first looked at."""
        self.quota.hours_at = self.quota.hours_at or self.started_at

    @classmethod
    def restored(cls, started_at: float, saved: Saved) -> "State":
        """Return the state that follows from saved values."""
        state = cls(started_at, mesos=MesosPart(framework_id=saved.framework_id, doubtful=saved.doubtful))
        for noun in NOUNS:
            values = getattr(saved, noun.plural)
            for value in values if noun.key else (values,):
                state.put(value)
        state.apps.ended_instances.clear()
        state.work.events.extend(remembered(state.work.jobs.values(), state.work.tasks.values()))
        return state

    def part_with(self, name: str) -> object:
        """Return the part that has a field of that name."""
        return getattr(self, PART_WITH[name])

    def put(self, value: Any) -> None:
        """Put a value of a noun into the state, in place of the value with its key; `Turn.put` also saves it."""
        kind = type(value)
        if kind in _PUT:
            _PUT[kind](self)(value)
            return
        noun = NOUN_OF[kind]
        part = self.part_with(noun.plural)
        if noun.key:
            getattr(part, noun.plural)[dict_key(key_of(value))] = value
        else:
            setattr(part, noun.plural, value)

    def drop(self, kind: type[Any], *key: Any) -> None:
        """Remove the value of a noun that has that key."""
        if kind in _DROP:
            _DROP[kind](self)(*key)
        else:
            name = NOUN_OF[kind].plural
            del getattr(self.part_with(name), name)[dict_key(key)]

    @property
    def books(self) -> Books:
        """Sums over jobs and past use, built on first use."""
        if self.quota.made_books is None:
            self.quota.made_books = books_of(self.work.jobs.values(), self.quota.past_uses.values())
            for array in self.work.arrays.values():
                self._wait_in(array)
        return self.quota.made_books

    def leaves_in(self, tree: Tree) -> Leaves:
        """Return the pending jobs by the leaves of a tree."""
        quota, leaves = self.quota, self.quota.leaves
        if leaves is None or leaves.tree is not tree:
            leaves = quota.leaves = Leaves(tree)
            quota.moved_jobs = {job_id for _, job_id in self.work.queue}
        if quota.moved_jobs:
            for job_id in quota.moved_jobs:
                leaves.enter(job_id, self.work.jobs.get(job_id))
            quota.moved_jobs = set()
        return leaves

    def set_job(self, job: Job) -> None:
        """Put a job into the state, and update all that is derived from it."""
        quota, old = self.quota, self.work.jobs.get(job.id)
        if quota.made_books is not None:
            quota.made_books.enter_job(old, job)
        self.work.set_job(job)
        was_pending, is_pending = (
            old is not None and old.state is JobState.PENDING,
            job.state is JobState.PENDING,
        )
        if quota.leaves is not None and (was_pending or is_pending):
            quota.moved_jobs.add(job.id)
        if quota.charges is not None and (
            old is None or was_pending is not is_pending or quota.charges.differ(old, job)
        ):
            quota.uncharged.update(self.work.live_of(job.id))
        if job.array is not None:
            self.work.members.enter_job(job)
            self._recount(job.array)
        if job.app_version is not None:
            self.apps.set_instance(job)
        elif old is None or is_pending is not was_pending:
            quota.count(job, new=old is None, pending=is_pending - was_pending)

    def forget_job(self, job_id: JobId) -> None:
        """Remove an ended job and its tasks."""
        job = self.work.forget_job(job_id)
        if job is not None:
            self.quota.count(job, gone=True)

    def set_array(self, array: JobArray) -> None:
        """Put an array into the state; its tasks without a job count as pending jobs."""
        old = self.work.set_array(array)
        self.quota.count(array, new=old is None)
        self._recount(array.id)

    def drop_array(self, array_id: JobId) -> None:
        """Remove an array that has ended."""
        array = self.work.arrays.pop(array_id)
        self.work.members.drop_array(array_id)
        self.quota.count(array, gone=True)

    def draft(self, array: JobArray, position: int) -> Job:
        """Return a new draft of an array: a job that is in the queue and not saved."""
        job = array.member(position)
        self.work.members.drafts.setdefault(array.id, {})[job.id] = position
        self.set_job(job)
        return job

    def drop_draft(self, job: Job) -> None:
        """Remove a job that `draft` has made."""
        assert job.array is not None, f"{job.id} is no member of an array"
        self.work.members.drop_draft(job.array, job.id)
        self.set_job(replace(job, state=JobState.KILLED))
        self.forget_job(job.id)
        given = self.quota.seats_given
        self.quota.seats_given = {each: seat for each, seat in given.items() if each != job.id}

    def _recount(self, array_id: JobId) -> None:
        """Update the counts of an array after a change of the array or a member."""
        array = self.work.arrays.get(array_id)
        if array is not None:
            self.quota.count(array, pending=self.work.members.enter_array(array))
            self._wait_in(array)

    def _wait_in(self, array: JobArray) -> None:
        """Update the sums of what an array's tasks without a job ask for."""
        if self.quota.made_books is not None:
            members = self.work.members
            waiting = members.unmade.get(array.id, 0)
            self.quota.made_books.enter_array(array, waiting, members.startable(array))

    def set_task(self, task: Task) -> None:
        """Put a task into the state; it holds its GPUs unless it has ended."""
        old = self.work.tasks.get(task.id)
        self.work.set_task(task)
        self.gpus.set_task(task)
        if old is None or old.state is not task.state or task.job_id is not None or task.covers is not None:
            self.cluster.touched.add(task.agent_id)  # a report of a node monitor changes no room
        charges, ended = self.quota.charges, task.ended
        if charges is not None and (ended or old is None or charges.differ(old, task)):
            self.quota.uncharged.add(task.id)
        if ended:
            self.apps.forget_results(task.id)

    def holder(self, gpu_id: GpuId) -> Task | None:
        """Return the task that holds a GPU wholly, or None."""
        task_id = self.gpus.holders.get(gpu_id)
        return None if task_id is None else self.work.tasks[task_id]

    def tenants(self, gpu_id: GpuId) -> list[Task]:
        """Return the tasks that hold a GPU: one wholly, or several with shares of it."""
        whole = self.holder(gpu_id)
        shares = [self.work.tasks[task_id] for task_id in self.gpus.sharers.get(gpu_id, ())]
        return shares if whole is None else [whole, *shares]


#: Part that has each field.
PART_WITH: Final = parts_by_field(State)
PARTS: Final = tuple(dict.fromkeys(PART_WITH.values()))
#: Methods for nouns whose values are not just entries of a dict.
_PUT: Final[Mapping[type[Any], Callable[[State], Callable[..., None]]]] = {
    Job: attrgetter("set_job"),
    JobArray: attrgetter("set_array"),
    Task: attrgetter("set_task"),
    Card: attrgetter("gpus.set_card"),
    Node: attrgetter("cluster.set_node"),
    PastUse: attrgetter("quota.set_past_use"),
    AppVersion: attrgetter("apps.set_app_version"),
    RootVersion: attrgetter("apps.set_root_version"),
}
_DROP: Final[Mapping[type[Any], Callable[[State], Callable[..., None]]]] = {
    PastUse: attrgetter("quota.drop_past_use"),
    JobArray: attrgetter("drop_array"),
    AppVersion: attrgetter("apps.drop_app_version"),
    RootVersion: attrgetter("apps.drop_root_version"),
}
