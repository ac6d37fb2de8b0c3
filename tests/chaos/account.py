"""What the witness knows: what the scheduler was told and what it saved, as both truly happened."""

from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.gpu_use import Work
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.model.tenancy import NO_QUEUES, QueueDocument
from tests.chaos.times.hours import Watch
from tests.chaos.virtual import VirtualMesos
from tests.doubles.memory_store import MemoryStore

_OF_APP: Final = "._app."
OF_ARRAY: Final = "s."  # tasks of the array s-1 are s.0-1.1 and so on


@dataclass(slots=True)
class Word:
    """What the scheduler was told of a launch."""

    ended: str = ""  # the first terminal state
    cut_since: float | None = None
    placed: bool = False  # its executor said that it has its place
    given_up: bool = False  # cut for so long that its job may start elsewhere
    running: bool = False


@dataclass(slots=True)
class Told:
    """What the scheduler was told of an agent, and when."""

    health: dict[GpuId, Health]
    driver: str | None
    at: float


@dataclass(slots=True)
class Known:
    """What monitors have told of one card of a launch: idle and busy, milliseconds, when of idle time last, and for how
    long without a break, of late, that it was at work."""

    work: Work | None = None
    idle_ms: int = 0
    busy_ms: int = 0
    idle_at: float = -1.0
    worked_ms: int = 0


@dataclass(slots=True)
class Idling:
    """What is known of all launches, and what they were told.

    Attributes:
        known: By launch and card.
        warned: Launches that were warned.
        noticed: By launch, the number of its latest notice that was judged.
        kept: Until when jobs are kept, as somebody has asked for.
    """

    kept: dict[JobId, float] = field(default_factory=dict)
    known: dict[tuple[TaskId, GpuId], Known] = field(default_factory=dict)
    warned: set[TaskId] = field(default_factory=set)
    noticed: dict[TaskId, int] = field(default_factory=dict)


@dataclass(slots=True)
class Calendar:
    """What is known of bookings beside what is on disk.

    Attributes:
        asked: Bookings that were made or changed by the batch in hand.
        before: Bookings as they were before the step in hand.
        alone: Whether nothing else was asked or told by that batch.
        cancelled: Those that somebody has cancelled.
        began: By booking, when its current time began.
        used: By booking, when a job that may was last seen on its cards, since its begin.
        noticed: By launch, the number of its latest notice that was judged.
        since: By rule and ids, since when something is not as it should be soon.
    """

    asked: set[str] = field(default_factory=set)
    before: dict[str, Booking] = field(default_factory=dict)
    alone: bool = False
    cancelled: set[str] = field(default_factory=set)
    began: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    noticed: dict[TaskId, int] = field(default_factory=dict)
    since: dict[tuple[str, str], float] = field(default_factory=dict)


def job_of(task_id: str) -> JobId:
    """The job whose launch has this id; an instance of an app has dots in its name."""
    if task_id.startswith(OF_ARRAY):
        return JobId(".".join(task_id.split(".")[:2]))
    return JobId(task_id.rpartition(".")[0] if _OF_APP in task_id else task_id.partition(".")[0])


def launch_of(task_id: str) -> str:
    """Which launch of its job: "2" of j1.2, and of j1.2.0, a gang's first member."""
    if _OF_APP in task_id:
        return task_id.rpartition(".")[2]
    return task_id.removeprefix(f"{job_of(task_id)}.").partition(".")[0]


class Account:
    """An account of one scheduler's life, over all its restarts."""

    def __init__(self, mesos: VirtualMesos, settings: Settings) -> None:
        """Nothing was said yet."""
        self.mesos, self.settings = mesos, settings
        self.disk = MemoryStore()
        self.watch = Watch()  # by which hours of queues are looked at
        self.words: dict[TaskId, Word] = {}
        self.agents: dict[AgentId, Told] = {}
        self.held: dict[OfferId, AgentId] = {}  # offers that the scheduler may use
        self.registered_at = 0.0  # the scheduler with the master
        self.unseen_since: dict[AgentId, float] = {}  # GPUs of agents that the scheduler is not offered
        self.followed: set[AgentId] = (
            set()
        )  # agents that are gone, and of whose hosts another one has reported
        self.void_now: set[OfferId] = set()  # those that it might use before the batch just heard
        self.unacknowledged: dict[tuple[TaskId, str], int] = {}
        self.submitted: set[JobId] = set()
        self.user_killed: set[JobId] = set()
        self.drained: dict[tuple[Target, str], float | None] = {}  # until when what runs there may run on
        self.evicted: set[TaskId] = set()
        self.asked: dict[TaskId, Resize] = {}  # the latest share that each was asked to have
        self.may_restart: set[TaskId] = set()  # its user wants another share, if need be by another launch
        self.launches: dict[JobId, list[TaskId]] = {}
        self.ended_now: set[TaskId] = set()  # by words of the batch in hand, which may follow what is judged
        self.begun: set[str] = set()  # launches of gangs whose members may start
        self.launched: set[JobId] = set()  # by the batch in hand
        self.dropped: set[JobId] = set()  # of these, those that Mesos will drop: an offer was void already
        self.learnt: dict[JobId, tuple[TaskId, str]] = {}  # from which launch, and what
        self.broken_now: set[GpuId] = set()  # by reports of the batch in hand
        self.healthy: dict[TaskId, bool | None] = {}  # by the scheduler's checks, since its start
        self.ready: set[TaskId] = set()
        self.takers: set[JobId] = set()  # by the batch in hand others were told to end for them
        self.lent: dict[str, float] = {}  # by host, when another framework was seen to have GPUs of it
        self.idling, self.calendar = Idling(), Calendar()
        self.seats_change = False  # by the batch in hand
        self.hours_change = False  # and seats were not given since
        self.stops: dict[
            tuple[JobId, JobId], tuple[float, QueueDocument]
        ] = {}  # who was told to end for whom
        self.arrays: dict[JobId, JobArray] = {}  # as they were asked for
        self.spent: set[JobId] = set()  # members of arrays that have finished, be they forgotten

    def note_unseen(self, now: float) -> None:
        """Since when an agent has more GPUs free than the offers have that the scheduler holds."""
        short = {agent.id for agent in self.mesos.agents.values() if agent.free["gpus"] + agent.kept["gpus"]}
        short |= {agent.id for offer_id, (agent, _) in self.mesos.offers.items() if offer_id not in self.held}
        self.unseen_since = {agent_id: self.unseen_since.get(agent_id, now) for agent_id in short}

    @property
    def queues(self) -> QueueDocument:
        """The tree of queues that is on disk, with the figures of the hours that it is."""
        return self.watch.document(self.written)

    @property
    def written(self) -> QueueDocument:
        """The tree of queues as it is on disk."""
        return next(reversed(self.disk.queue_versions.values()), NO_QUEUES)

    def latest(self, job_id: JobId) -> list[TaskId]:
        """The tasks of a job's latest launch."""
        tasks = self.launches.get(job_id, [])
        return [task_id for task_id in tasks if launch_of(task_id) == launch_of(tasks[-1])]

    def given_up(self, task_id: TaskId, now: float) -> bool:
        """Whether it was cut off for so long that its job may start elsewhere, or its host has another agent now."""
        word = self.words[task_id]
        limit_s = self.settings.mesos.unreachable_timeout_s
        cut = word.cut_since is not None and now - word.cut_since >= limit_s
        return word.given_up or cut or self.is_replaced(task_id)

    def is_replaced(self, task_id: TaskId) -> bool:
        """Whether the agent of a launch is gone for good, and another one of its host has reported since."""
        task = self.disk.tasks.get(task_id) if self.followed else None
        return task is not None and task.agent_id in self.followed

    def note_followed(self, agent_id: AgentId, hostname: str) -> None:
        """An agent has reported: those that its host had before have another one after them from now on, whatever
        becomes of this one."""
        gone = self.mesos.gone.items()
        self.followed.update(each for each, host in gone if host == hostname and each != agent_id)

    def job_of(self, task_id: TaskId) -> JobId | None:
        """Return the job of a task, if it was submitted."""
        job_id = self.whose(task_id)
        return job_id if job_id in self.submitted else None

    def whose(self, task_id: TaskId) -> JobId:
        """Return the job of a task, submitted or not. An instance of an app that came back is another job, whose tasks
        are counted on: only what was saved tells the two apart."""
        task = self.disk.tasks.get(task_id)
        return task.job_id if task and task.job_id else job_of(task_id)
