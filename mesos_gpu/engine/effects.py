"""What the engine wants done, as data. The shell does it, in ORDER."""

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
    """ACKNOWLEDGE a status update whose consequences are saved."""

    agent_id: AgentId
    task_id: TaskId
    uuid: str


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """A task of a Launch. `spec` is None for a node monitor, and for a task that covers a shared card. Of the latter
    `executor_resources` are what its keeper takes with it; none: the keeper is there."""

    task: Task
    spec: JobSpec | None
    resources: tuple[Scalar, ...]
    executor_resources: tuple[Scalar, ...]
    ports: tuple[PortRange, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # beside the job's own: a member's place in its gang
    hosts: tuple[str, ...] = ()  # of all members, by rank; empty: it is not of a gang
    app_version: float | None = None  # of its job
    owner: str = ""  # of its job
    wire: int = SILENT  # in which its executor is spoken to
    listens: tuple[int, ...] = ()  # ports of the host; the executor reports whether the task listens there
    image_secret: str = ""  # path of the secret with the login for its image, of its job or its job's queue


@dataclass(frozen=True, slots=True)
class Launch:
    """ACCEPT offers of one agent."""

    offer_ids: tuple[OfferId, ...]
    tasks: tuple[LaunchTask, ...]
    reserve: tuple[Scalar, ...] = ()  # as they are when they are reserved; some of the tasks take them
    unreserve: tuple[Scalar, ...] = ()  # as they were offered; none of the tasks takes them


@dataclass(frozen=True, slots=True)
class Decline:
    """DECLINE offers."""

    offer_ids: tuple[OfferId, ...]
    refuse_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL a task."""

    task_id: TaskId
    agent_id: AgentId | None
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Shutdown:
    """SHUTDOWN an executor: Mesos knows its task no longer, so it cannot be killed."""

    agent_id: AgentId
    executor_id: str


@dataclass(frozen=True, slots=True)
class Disbelieve:
    """Say that an update was not believed. It is no call, and nothing follows from it."""

    task_id: TaskId
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """RECONCILE these tasks; none: all (implicit)."""

    tasks: tuple[tuple[TaskId, AgentId], ...]


@dataclass(frozen=True, slots=True)
class ListTasks:
    """Ask the master which tasks of ours it knows, with their labels; the answer is an event, or there is none."""


@dataclass(frozen=True, slots=True)
class ReadRole:
    """Ask the master what the roles of the scheduler may have, and have; answers are events, or there are none."""


@dataclass(frozen=True, slots=True)
class ReadSecrets:
    """Read these from the store of secrets and keep their values at hand; the answer is an event."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetSecrets:
    """Keep the values of these no longer."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskReset:
    """MESSAGE to a node monitor: reset a GPU. It may be lost on the way, or come twice."""

    agent_id: AgentId
    executor_id: str
    gpu_id: GpuId
    request: str


@dataclass(frozen=True, slots=True)
class AskRemoval:
    """MESSAGE to a node monitor: remove persistent volumes. It may be lost on the way, or come twice."""

    agent_id: AgentId
    executor_id: str
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """MESSAGE to the executor of a gang's member: all are in their places. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class AskResize:
    """MESSAGE to the executor of a task: resize its share. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    task_id: TaskId
    resize: Resize


@dataclass(frozen=True, slots=True)
class GiveNotice:
    """MESSAGE to the executor of a task: let it read this. It may be lost, or come twice."""

    agent_id: AgentId
    executor_id: str
    task_id: TaskId
    notice: Notice
    left_s: float  # until its end, now; 0 at least
    signal: NoticeSignal = NoticeSignal.NONE  # beside it


@dataclass(frozen=True, slots=True)
class Suppress:
    """SUPPRESS offers of some roles; none named: of all."""

    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revive:
    """REVIVE offers of some roles; none named: of all."""

    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Tell listeners that a job changed, or something that is told beside jobs: then its id is ""."""

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

#: The order in which journals have them; others follow as their nouns are declared.
_FORGOTTEN_FIRST: Final[tuple[type[Save], ...]] = (
    ForgetSplit,
    ForgetAppVersion,
    ForgetDeployment,
    ForgetRootVersion,
)
#: What is saved comes first: a launch or an acknowledgement that is not on disk must not leave the house.
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
#: All effects but those on the store.
DONE_OUTSIDE: Final[tuple[type[Effect], ...]] = tuple(kind for kind in get_args(Effect) if kind is not Save)
see_complete("engine.effects.ORDER", ORDER, (*SAVES, *DONE_OUTSIDE))
RANK: Final = {kind: rank for rank, kind in enumerate(ORDER)}
