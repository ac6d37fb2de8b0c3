"""Effects: what the engine wants done, as data. The scheduler carries them out in `ORDER`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from mesos_gpu.engine.complete import see_complete
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import JobSpec, NoticeSignal
from mesos_gpu.model.nodes.offer import PortRange, Scalar
from mesos_gpu.model.nodes.wires import SILENT
from mesos_gpu.model.saves import (
    FORGOTTEN_BY,
    SAVED_BY,
    SAVES,
    FoldRecords,
    ForgetAppVersion,
    ForgetDeployment,
    ForgetEvents,
    ForgetRootVersion,
    ForgetSplit,
    KeepEvent,
    KeepHooks,
    KeepJob,
    KeepRecord,
    KeepSent,
    Save,
    SaveFramework,
    SaveTrust,
)
from mesos_gpu.model.tasks.notice import Notice
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.model.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Call ACKNOWLEDGE for a status update whose consequences are saved."""

    agent_id: AgentId
    task_id: TaskId
    uuid: str


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """Task of a `Launch`.

    Attributes:
        task: The new task.
        spec: Request of its job; None for a node monitor or a cover task.
        resources: Resources of the task.
        executor_resources: Resources of its executor; for a cover task those of its keeper, empty if the keeper runs.
        ports: Ports of the host, with their kind of resource.
        env: Environment variables beside the job's own, as the place of a member in its gang.
        hosts: Host names of all members of its gang, by rank; empty for other tasks.
        app_version: Version of the app of its job.
        owner: Owner of its job.
        wire: Version of the messages for its executor.
        listens: Ports of the host for which the executor reports whether the task listens there.
        image_secret: Path of the secret with the login for its image, of its job or the job's queue.
    """

    task: Task
    spec: JobSpec | None
    resources: tuple[Scalar, ...]
    executor_resources: tuple[Scalar, ...]
    ports: tuple[PortRange, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    app_version: float | None = None
    owner: str = ""
    wire: int = SILENT
    listens: tuple[int, ...] = ()
    image_secret: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Call ACCEPT for offers of one agent.

    Attributes:
        reserve: Resources to reserve, as they are reserved then; some of the tasks take them.
        unreserve: Resources to unreserve, as offered; none of the tasks takes them.
    """

    offer_ids: tuple[OfferId, ...]
    tasks: tuple[LaunchTask, ...]
    reserve: tuple[Scalar, ...] = ()
    unreserve: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class Decline:
    """Call DECLINE for offers."""

    offer_ids: tuple[OfferId, ...]
    refuse_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """Call KILL for a task."""

    task_id: TaskId
    agent_id: AgentId | None
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Call SHUTDOWN for an executor whose task Mesos no longer knows, so that it cannot be killed."""

    agent_id: AgentId
    executor_id: str


@dataclass(frozen=True, slots=True)
class Disbelieve:
    """Log that a status update was not trusted. It is no call, and nothing follows from it."""

    task_id: TaskId
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Call RECONCILE for some tasks; without tasks for all of them (implicit reconciliation)."""

    tasks: tuple[tuple[TaskId, AgentId], ...]


@dataclass(frozen=True, slots=True)
class ListTasks:
    """Request all tasks of the framework with their labels from the master; an event answers, unless it is lost."""


@dataclass(frozen=True, slots=True)
class ReadRole:
    """Request limits and use of the scheduler's roles from the master; events answer, unless they are lost."""


@dataclass(frozen=True, slots=True)
class ReadSecrets:
    """Read secrets from the secret store and keep their values in memory; an event answers."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetSecrets:
    """Remove the values of secrets from memory."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskReset:
    """Send a MESSAGE to a node monitor to reset a GPU. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    gpu_id: GpuId
    request: str


@dataclass(frozen=True, slots=True)
class AskRemoval:
    """Send a MESSAGE to a node monitor to remove persistent volumes. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Send a MESSAGE to the executor of a gang's member that all members are ready. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class AskResize:
    """Send a MESSAGE to the executor of a task to resize its share. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    task_id: TaskId
    resize: Resize


@dataclass(frozen=True, slots=True)
class GiveNotice:
    """Send a MESSAGE to the executor of a task with a notice for the task. It may be lost, or come twice.

    Attributes:
        left_s: Seconds from now to the end of the task, at least 0.
        signal: Signal that the task gets with the notice.
    """

    agent_id: AgentId
    executor_id: str
    task_id: TaskId
    notice: Notice
    left_s: float
    signal: NoticeSignal = NoticeSignal.NONE


@dataclass(frozen=True, slots=True)
class Suppress:
    """Call SUPPRESS for offers to some roles; without roles for all of them."""

    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revive:
    """Call REVIVE for offers to some roles; without roles for all of them."""

    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Report a change of a job to listeners; the id is "" for an event without a job."""

    job_id: JobId
    version: int


Call = (
    Acknowledge
    | Launch
    | Decline
    | Kill
    | Shutdown
    | Reconcile
    | ListTasks
    | ReadRole
    | AskReset
    | AskRemoval
    | Start
    | AskResize
    | GiveNotice
    | Suppress
    | Revive
)
Effect = Save | Call | Publish | Disbelieve | ReadSecrets | ForgetSecrets

#: Order of these effects in journals; other effects follow in the order in which their nouns are declared.
_FORGOTTEN_FIRST: Final[tuple[type[Save], ...]] = (
    ForgetSplit,
    ForgetAppVersion,
    ForgetDeployment,
    ForgetRootVersion,
)
#: Saves come first: no launch or acknowledgement may be sent before it is on disk.
ORDER: Final[tuple[type[Effect], ...]] = (
    SaveFramework,
    SaveTrust,
    *SAVED_BY,
    *dict.fromkeys((*_FORGOTTEN_FIRST, *FORGOTTEN_BY)),
    KeepRecord,
    FoldRecords,
    KeepJob,
    KeepEvent,
    ForgetEvents,
    KeepHooks,
    KeepSent,
    Acknowledge,
    Launch,
    Decline,
    Kill,
    Shutdown,
    Reconcile,
    ListTasks,
    AskReset,
    Start,
    AskResize,
    GiveNotice,
    Suppress,
    Revive,
    Publish,
    Disbelieve,
    ReadSecrets,
    ForgetSecrets,
    ReadRole,
    AskRemoval,
)
#: All effects except those on the store.
DONE_OUTSIDE: Final[tuple[type[Effect], ...]] = tuple(kind for kind in get_args(Effect) if kind is not Save)
see_complete("engine.effects.ORDER", ORDER, (*SAVES, *DONE_OUTSIDE))
RANK: Final = {kind: rank for rank, kind in enumerate(ORDER)}
