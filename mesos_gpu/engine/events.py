"""What happens to the scheduler. Each event comes with its time, as an argument of `step`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.bookings.booking import Booking, BookingSpec
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.model.tenancy import QueueDocument

Answer = TypeVar("Answer")


class Change(Generic[Answer]):
    """A change that a user asks for, and that is answered with a value of that type once it is saved."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The master accepted the subscription; all earlier offers are void."""

    framework_id: str
    master_url: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The subscription broke; offers died with it."""


@dataclass(frozen=True, slots=True)
class FrameworkRemoved:
    """An operator has torn the framework down, or the master gave it up: Mesos ends all its tasks."""


@dataclass(frozen=True, slots=True)
class OffersArrived:
    """OFFERS."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class OfferRescinded:
    """RESCIND; it may have crossed an ACCEPT, which then ends in TASK_DROPPED."""

    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class StatusArrived:
    """UPDATE."""

    status: Status


@dataclass(frozen=True, slots=True)
class TasksListed:
    """All tasks of ours that the master knows, ended ones too."""

    tasks: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class RoleRead:
    """The master was asked for a role of the scheduler."""

    role: Role


@dataclass(frozen=True, slots=True)
class SecretsRead:
    """The store of secrets was asked. `problems`: by source, why it has no value; "": that is at hand."""

    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnknownAdopted(Change[None]):
    """An operator makes a job of an unknown task, or gives it to the job that it is of."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class UnknownKilled(Change[None]):
    """An operator ends an unknown task."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class AgentLost:
    """FAILURE of an agent; the updates of its tasks come by themselves."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class JobSubmitted(Change[Job]):
    """A user's valid request; the id is new."""

    job_id: JobId
    spec: JobSpec
    owner: str = ""  # the name of who submits it


@dataclass(frozen=True, slots=True)
class KillRequested(Change[Job]):
    """A user wants a job to end; `wipe`: of an app's instance, that another one gets another name and other volumes."""

    job_id: JobId
    wipe: bool = False


@dataclass(frozen=True, slots=True)
class ArrayKillRequested(Change[Job]):
    """A user wants tasks of a job array to end; `indexes`: text of those; None: all of it."""

    array_id: JobId
    indexes: str | None = None


@dataclass(frozen=True, slots=True)
class ResizeRequested(Change[Job]):
    """A user wants the shares of a running job larger or smaller.

    Attributes:
        job_id: Of the job.
        patch: What changes of its gpu_milli, gpu_memory_mib, gpu_compute_pct and gpu_memory_max_mib; None: asked for no
            more.
        restart: Whether it may start again where that is the only way.
    """

    job_id: JobId
    patch: Mapping[str, int | None]
    restart: bool = False


@dataclass(frozen=True, slots=True)
class ResizeWithdrawn(Change[Job]):
    """A user wants a job to keep the shares that it had before a resize that its hosts have not answered."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CheckpointTold(Change[Job]):
    """Somebody says of a running job that it has kept its work up to now."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class DrainRequested(Change[None]):
    """An operator takes a GPU (by UUID) or a node (by host name) out; again: with another reason or deadline."""

    target: Target
    name: str
    reason: str
    by: str = ""
    deadline_s: float | None = None  # from now; None: what runs there may run on for ever


@dataclass(frozen=True, slots=True)
class UndrainRequested(Change[None]):
    """An operator gives it back."""

    target: Target
    name: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class ResetRequested(Change[str]):
    """An operator wants a GPU that nobody holds reset; the request's id is new."""

    gpu_id: GpuId
    request: str
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class AppsChanged(Change[Deployment | None]):
    """A user's valid request for a new tree of apps; the id is that of a new deployment.

    Attributes:
        kill: Instances by app that are killed in any case and not replaced. In the tree, the size of each app is
            reduced by those of them that were not being killed before.
    """

    id: str
    root: Group
    force: bool = False
    restarts: frozenset[str] = frozenset()
    kill: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentDeleted(Change[Deployment | None]):
    """A user wants a deployment undone by another one of a new id; or, with `force`, ended where it is."""

    id: str
    new_id: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class DelayReset(Change[None]):
    """A user wants an app's next launch at once, whatever failed before."""

    app: str


@dataclass(frozen=True, slots=True)
class HealthFound:
    """The scheduler's own checks say how a task of an app is, and, if it must go, why."""

    task_id: TaskId
    healthy: bool | None
    kill: str = ""
    healths: tuple[CheckHealth, ...] = ()  # of each check that the scheduler makes, in the app's order


@dataclass(frozen=True, slots=True)
class ReadinessFound:
    """What a readiness check found of a task of an app."""

    task_id: TaskId
    readiness: Readiness


@dataclass(frozen=True, slots=True)
class SplitSet(Change[None]):
    """A user's valid request: a service as it shall be, new or in place of the one of its name."""

    split: TrafficSplit


@dataclass(frozen=True, slots=True)
class SplitDropped(Change[None]):
    """A user does not want a service any more."""

    name: str


@dataclass(frozen=True, slots=True)
class AccessChanged(Change[AccessDocument]):
    """Who may do what shall be as a valid document says, if it is still at the version that was read. Its version and
    time are the engine's."""

    document: AccessDocument
    expected_version: int


@dataclass(frozen=True, slots=True)
class QueuesChanged(Change[QueueDocument]):
    """The tree of queues shall be as a valid document says, if it is still at the version that was read. Its version
    and time are the engine's.

    Attributes:
        document: What was asked for.
        expected_version: The version that was read.
        reclaim_after_s: After so long, jobs are stopped that run where the document leaves no room; None: none is.
    """

    document: QueueDocument
    expected_version: int
    reclaim_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetGranted(Change[None]):
    """A budget shall have more in its current period; or less: that is set aside.

    Attributes:
        queue: Whose budget it is.
        user: Of whom; "*": of all.
        amount: Thousandths of cost times milliseconds.
    """

    queue: str
    user: str
    amount: int


@dataclass(frozen=True, slots=True)
class BookingMade(Change[Booking]):
    """GPUs shall be booked. When that begins is as somebody wrote it.

    Attributes:
        id: Of the booking.
        spec: What is asked for.
        by: The proved name of who asks; "": nobody was asked.
    """

    id: str
    spec: BookingSpec
    by: str = ""


@dataclass(frozen=True, slots=True)
class BookingChanged(Change[Booking]):
    """A booking shall be another one: at another time, or of something else."""

    id: str
    spec: BookingSpec


@dataclass(frozen=True, slots=True)
class BookingCancelled(Change[Booking]):
    """A booking is not wanted any more."""

    id: str


@dataclass(frozen=True, slots=True)
class KeepAsked(Change[Job]):
    """Somebody wants a job not to be ended for GPUs that do nothing, for a time or until one.

    Attributes:
        job_id: Which.
        for_s: Seconds from now; None: `until` says it.
        until: Seconds since the epoch; None: `for_s` says it.
        by: The name of who asks; "": it is not known.
    """

    job_id: JobId
    for_s: float | None
    until: float | None
    by: str = ""


@dataclass(frozen=True, slots=True)
class KeepWithdrawn(Change[Job]):
    """A job need not be kept any longer."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class VolumeRemoved(Change[None]):
    """A named volume is to be removed from its node with all that is in it."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class TokenCreated(Change[Token]):
    """A token is wanted whose secret was drawn. Its times are the engine's: it expires `lifetime_s` from now, and at
    `until` at the latest."""

    token: Token
    lifetime_s: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class TokenRevoked(Change[None]):
    """A token shall prove nothing any more."""

    id: str


@dataclass(frozen=True, slots=True)
class TokenUsed:
    """A token has proved a name, from that address; not each time."""

    id: str
    address: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Match:
    """A batch of events is through: match what waits with what is offered."""


Event = (
    Registered
    | Disconnected
    | FrameworkRemoved
    | OffersArrived
    | OfferRescinded
    | StatusArrived
    | TasksListed
    | RoleRead
    | SecretsRead
    | UnknownAdopted
    | UnknownKilled
    | AgentLost
    | JobSubmitted
    | KillRequested
    | ArrayKillRequested
    | ResizeRequested
    | ResizeWithdrawn
    | CheckpointTold
    | DrainRequested
    | UndrainRequested
    | ResetRequested
    | AppsChanged
    | DeploymentDeleted
    | DelayReset
    | HealthFound
    | ReadinessFound
    | SplitSet
    | SplitDropped
    | AccessChanged
    | QueuesChanged
    | BudgetGranted
    | BookingMade
    | BookingChanged
    | BookingCancelled
    | KeepAsked
    | KeepWithdrawn
    | VolumeRemoved
    | TokenCreated
    | TokenRevoked
    | TokenUsed
    | Tick
    | Match
)
