"""The account of a scheduler: messages that it received and data that it saved, from which rules judge it."""

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
    """The state of a launch by the status updates that the scheduler has received."""

    ended: str = ""  # the first terminal state
    cut_since: float | None = None
    placed: bool = False  # whether its executor has reported that it is ready to start
    given_up: bool = False  # whether it was unreachable for so long that its job may start elsewhere
    running: bool = False


@dataclass(slots=True)
class Told:
    """The latest report of an agent's monitor that the scheduler has received."""

    health: dict[GpuId, Health]
    driver: str | None
    at: float


@dataclass(slots=True)
class Known:
    """The use of one card of a launch, by the reports of monitors.

    Attributes:
        work: Latest counts of a monitor.
        idle_ms: Milliseconds in which the card was idle.
        busy_ms: Milliseconds in which the card was busy.
        idle_at: Time of the latest report with idle time, in seconds since the epoch.
        worked_ms: Milliseconds of the latest time without a break in which the card was busy.
    """

    work: Work | None = None
    idle_ms: int = 0
    busy_ms: int = 0
    idle_at: float = -1.0
    worked_ms: int = 0


@dataclass(slots=True)
class Idling:
    """Idle GPUs: known use of cards, and warnings and notices of launches.

    Attributes:
        known: Known use by launch and card.
        warned: Launches that got a warning.
        noticed: Number of the latest judged notice, by launch.
        kept: Time until which a user has asked to keep a job, by job.
    """

    kept: dict[JobId, float] = field(default_factory=dict)
    known: dict[tuple[TaskId, GpuId], Known] = field(default_factory=dict)
    warned: set[TaskId] = field(default_factory=set)
    noticed: dict[TaskId, int] = field(default_factory=dict)


@dataclass(slots=True)
class Calendar:
    """Facts of bookings beside those that are saved.

    Attributes:
        asked: Bookings that the present batch has made or changed.
        before: Bookings before the present step.
        alone: Whether the present batch has only one message.
        cancelled: Bookings that a user has cancelled.
        began: Time at which the current occurrence began, by booking.
        used: Time at which an authorized job was last seen on the cards, by booking.
        noticed: Number of the latest judged notice, by launch.
        since: Time since which a rule is broken, by rule and ids; it must hold again soon.
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
    """Return the job of a launch by its id; names of instances of apps contain dots."""
    if task_id.startswith(OF_ARRAY):
        return JobId(".".join(task_id.split(".")[:2]))
    return JobId(task_id.rpartition(".")[0] if _OF_APP in task_id else task_id.partition(".")[0])


def launch_of(task_id: str) -> str:
    """Return the number of a launch of its job: "2" for j1.2, and for j1.2.0, the first member of a gang."""
    if _OF_APP in task_id:
        return task_id.rpartition(".")[2]
    return task_id.removeprefix(f"{job_of(task_id)}.").partition(".")[0]


class Account:
    """Received messages and saved data of one scheduler, over all its restarts."""

    def __init__(self, mesos: VirtualMesos, settings: Settings) -> None:
        """Begin without any messages."""
        self.mesos, self.settings = mesos, settings
        self.disk = MemoryStore()
        self.watch = Watch()  # clock by which hours of queues apply
        self.words: dict[TaskId, Word] = {}
        self.agents: dict[AgentId, Told] = {}
        self.held: dict[OfferId, AgentId] = {}  # offers that the scheduler may use
        self.registered_at = 0.0  # time of the latest registration with the master
        self.unseen_since: dict[AgentId, float] = {}  # time since which GPUs of an agent are not offered
        self.followed: set[AgentId] = (
            set()
        )  # agents that are gone, while another agent of their host has reported
        self.void_now: set[OfferId] = set()  # offers that the scheduler might use before the present batch
        self.unacknowledged: dict[tuple[TaskId, str], int] = {}
        self.submitted: set[JobId] = set()
        self.user_killed: set[JobId] = set()
        self.drained: dict[tuple[Target, str], float | None] = {}  # deadline by drained place
        self.evicted: set[TaskId] = set()
        self.asked: dict[TaskId, Resize] = {}  # latest request to resize a share, by task
        self.may_restart: set[TaskId] = set()  # tasks whose user allows another launch for a resize
        self.launches: dict[JobId, list[TaskId]] = {}
        self.ended_now: set[TaskId] = (
            set()
        )  # tasks that ended in the present batch, perhaps after the judged step
        self.begun: set[str] = set()  # launches of gangs whose members may start
        self.launched: set[JobId] = set()  # jobs that the present batch has launched
        self.dropped: set[JobId] = set()  # launched jobs that Mesos will drop, because an offer was void
        self.learnt: dict[
            JobId, tuple[TaskId, str]
        ] = {}  # launch and driver version that a job was found to need
        self.broken_now: set[GpuId] = set()  # cards that reports of the present batch call broken
        self.healthy: dict[
            TaskId, bool | None
        ] = {}  # results of the scheduler's health checks since its start
        self.ready: set[TaskId] = set()
        self.takers: set[JobId] = set()  # jobs for which others got notice in the present batch
        self.lent: dict[
            str, float
        ] = {}  # time at which another framework was last seen to have GPUs, by host
        self.idling, self.calendar = Idling(), Calendar()
        self.seats_change = False  # whether the present batch changes guaranteed admissions
        self.hours_change = False  # whether hours have changed since the last admissions
        self.stops: dict[
            tuple[JobId, JobId], tuple[float, QueueDocument]
        ] = {}  # time and document of a preemption, by victim and gaining job
        self.arrays: dict[JobId, JobArray] = {}  # arrays as they were submitted
        self.spent: set[JobId] = set()  # finished members of arrays, forgotten ones included

    def note_unseen(self, now: float) -> None:
        """Record since when an agent has free GPUs that are not in offers of the scheduler."""
        short = {agent.id for agent in self.mesos.agents.values() if agent.free["gpus"] + agent.kept["gpus"]}
        short |= {agent.id for offer_id, (agent, _) in self.mesos.offers.items() if offer_id not in self.held}
        self.unseen_since = {agent_id: self.unseen_since.get(agent_id, now) for agent_id in short}

    @property
    def queues(self) -> QueueDocument:
        """The saved tree of queues, with the figures of the present hours."""
        return self.watch.document(self.written)

    @property
    def written(self) -> QueueDocument:
        """The saved tree of queues, without hours applied."""
        return next(reversed(self.disk.queue_versions.values()), NO_QUEUES)

    def latest(self, job_id: JobId) -> list[TaskId]:
        """Return the tasks of a job's latest launch."""
        tasks = self.launches.get(job_id, [])
        return [task_id for task_id in tasks if launch_of(task_id) == launch_of(tasks[-1])]

    def given_up(self, task_id: TaskId, now: float) -> bool:
        """Return whether a task was unreachable too long or its agent was replaced: its job may start elsewhere."""
        word = self.words[task_id]
        limit_s = self.settings.mesos.unreachable_timeout_s
        cut = word.cut_since is not None and now - word.cut_since >= limit_s
        return word.given_up or cut or self.is_replaced(task_id)

    def is_replaced(self, task_id: TaskId) -> bool:
        """Return whether the agent of a launch is gone, and another agent of its host has reported since."""
        task = self.disk.tasks.get(task_id) if self.followed else None
        return task is not None and task.agent_id in self.followed

    def note_followed(self, agent_id: AgentId, hostname: str) -> None:
        """Record a report of an agent: earlier agents of its host are replaced from now on."""
        gone = self.mesos.gone.items()
        self.followed.update(each for each, host in gone if host == hostname and each != agent_id)

    def job_of(self, task_id: TaskId) -> JobId | None:
        """Return the job of a task, if it was submitted."""
        job_id = self.whose(task_id)
        return job_id if job_id in self.submitted else None

    def whose(self, task_id: TaskId) -> JobId:
        """Return the job of a task, submitted or not.

        A recreated instance of an app is another job that continues the numbers of tasks; only saved tasks tell which.
        """
        task = self.disk.tasks.get(task_id)
        return task.job_id if task and task.job_id else job_of(task_id)
