"""Events that reach the engine. Each comes with its time, as an argument of `step`."""

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
    """Change that a user requests; once it is saved, the answer is a value of type `Answer`."""

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
    """The framework was torn down by an operator, or given up by the master: Mesos ends all its tasks."""


@dataclass(frozen=True, slots=True)
class OffersArrived:
    """Event OFFERS of the master."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class OfferRescinded:
    """Event RESCIND of the master; if it has crossed an ACCEPT, that ends in TASK_DROPPED."""

    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class StatusArrived:
    """Event UPDATE of the master: a status update."""

    status: Status


@dataclass(frozen=True, slots=True)
class TasksListed:
    """List of all tasks of the framework that the master knows, with ended ones."""

    tasks: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class RoleRead:
    """Answer of the master about a role of the scheduler."""

    role: Role


@dataclass(frozen=True, slots=True)
class SecretsRead:
    """Answer of the secret store.

    Attributes:
        problems: Reason why a secret has no value, by its source; "" for a secret whose value is in memory.
    """

    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnknownAdopted(Change[None]):
    """Request of an operator to adopt an unknown task, as a task of its job or of a new one."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class UnknownKilled(Change[None]):
    """Request of an operator to kill an unknown task."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class AgentLost:
    """Event FAILURE of an agent; status updates of its tasks follow on their own."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class JobSubmitted(Change[Job]):
    """Valid submission of a job by a user, with a new id.

    Attributes:
        owner: Authenticated name of the submitter; "" without one.
    """

    job_id: JobId
    spec: JobSpec
    owner: str = ""


@dataclass(frozen=True, slots=True)
class KillRequested(Change[Job]):
    """Request of a user to end a job.

    Attributes:
        wipe: Whether an instance that replaces one of an app gets another name and other volumes.
    """

    job_id: JobId
    wipe: bool = False


@dataclass(frozen=True, slots=True)
class ArrayKillRequested(Change[Job]):
    """Request of a user to end tasks of a job array.

    Attributes:
        indexes: Indexes of the tasks as text; None for the whole array.
    """

    array_id: JobId
    indexes: str | None = None


@dataclass(frozen=True, slots=True)
class ResizeRequested(Change[Job]):
    """Request of a user to change the shares of a running job.

    Attributes:
        job_id: Id of the job.
        patch: New values of gpu_milli, gpu_memory_mib, gpu_compute_pct and gpu_memory_max_mib; None removes a value.
        restart: Whether the job may be started again if that is the only way.
    """

    job_id: JobId
    patch: Mapping[str, int | None]
    restart: bool = False


@dataclass(frozen=True, slots=True)
class ResizeWithdrawn(Change[Job]):
    """Request of a user to keep the shares of a job before a resize that its hosts have not answered."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CheckpointTold(Change[Job]):
    """Report of a user that a running job has just saved its work."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class DrainRequested(Change[None]):
    """Request of an operator to drain a GPU (by UUID) or a node (by host name), or to change the reason or deadline.

    Attributes:
        deadline_s: Seconds from now to the eviction of jobs; None if jobs may run to their end.
    """

    target: Target
    name: str
    reason: str
    by: str = ""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class UndrainRequested(Change[None]):
    """Request of an operator to end a drain."""

    target: Target
    name: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class ResetRequested(Change[str]):
    """Request of an operator to reset a GPU that no task holds, with a new id."""

    gpu_id: GpuId
    request: str
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class AppsChanged(Change[Deployment | None]):
    """Valid request of a user for a new tree of apps, with the id of a new deployment.

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
    """Request of a user to undo a deployment by another one with a new id, or with `force` to end it as it stands."""

    id: str
    new_id: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class DelayReset(Change[None]):
    """Request of a user to launch an app at once, whatever failures came before."""

    app: str


@dataclass(frozen=True, slots=True)
class HealthFound:
    """Result of the scheduler's own health checks of an app's task.

    Attributes:
        kill: Reason to kill the task; "" if it may go on.
        healths: Result of each check that the scheduler makes, in the app's order.
    """

    task_id: TaskId
    healthy: bool | None
    kill: str = ""
    healths: tuple[CheckHealth, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadinessFound:
    """Result of a readiness check of an app's task."""

    task_id: TaskId
    readiness: Readiness


@dataclass(frozen=True, slots=True)
class SplitSet(Change[None]):
    """Valid request of a user to define a service, in place of an older one with its name."""

    split: TrafficSplit


@dataclass(frozen=True, slots=True)
class SplitDropped(Change[None]):
    """Request of a user to delete a service."""

    name: str


@dataclass(frozen=True, slots=True)
class AccessChanged(Change[AccessDocument]):
    """Request to replace the access document by a valid one, if it is still at the version that was read.

    The engine sets its version and time.
    """

    document: AccessDocument
    expected_version: int


@dataclass(frozen=True, slots=True)
class QueuesChanged(Change[QueueDocument]):
    """Request to replace the document of queues by a valid one, if it is still at the version that was read.

    The engine sets its version and time.

    Attributes:
        document: Document that replaces the latest one.
        expected_version: Version that was read.
        reclaim_after_s: Seconds after which running jobs that lose their guaranteed capacity by the document may be
            preempted like borrowers; None if they are not preempted for the change.
    """

    document: QueueDocument
    expected_version: int
    reclaim_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetGranted(Change[None]):
    """Request to add an amount to a budget in its current period, or to subtract it.

    Attributes:
        queue: Queue of the budget.
        user: User of the budget; "*" for a budget of all users.
        amount: Thousandths of cost times milliseconds; negative to subtract.
    """

    queue: str
    user: str
    amount: int


@dataclass(frozen=True, slots=True)
class BookingMade(Change[Booking]):
    """Request to book GPUs. The begin is as the user wrote it.

    Attributes:
        id: Id of the booking.
        spec: Request of the booking.
        by: Authenticated name of the user; "" without authentication.
    """

    id: str
    spec: BookingSpec
    by: str = ""


@dataclass(frozen=True, slots=True)
class BookingChanged(Change[Booking]):
    """Request to change the time or the content of a booking."""

    id: str
    spec: BookingSpec


@dataclass(frozen=True, slots=True)
class BookingCancelled(Change[Booking]):
    """Request to cancel a booking."""

    id: str


@dataclass(frozen=True, slots=True)
class KeepAsked(Change[Job]):
    """Request to protect a job from being ended for idle GPUs, for some seconds or until a time.

    Attributes:
        job_id: Id of the job.
        for_s: Seconds from now; None if `until` is given.
        until: Time in seconds since the epoch; None if `for_s` is given.
        by: Name of the user; "" if not known.
    """

    job_id: JobId
    for_s: float | None
    until: float | None
    by: str = ""


@dataclass(frozen=True, slots=True)
class KeepWithdrawn(Change[Job]):
    """Request to end the protection of a job from being ended for idle GPUs."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class VolumeRemoved(Change[None]):
    """Request to remove a named volume with its contents from its node."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class TokenCreated(Change[Token]):
    """Request to create a token whose secret was drawn already. The engine sets its times.

    Attributes:
        lifetime_s: Seconds from now to its expiry.
        until: Latest expiry in seconds since the epoch; None without one.
    """

    token: Token
    lifetime_s: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class TokenRevoked(Change[None]):
    """Request to revoke a token."""

    id: str


@dataclass(frozen=True, slots=True)
class TokenUsed:
    """Use of a token from an address; not every use is reported."""

    id: str
    address: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Match:
    """End of a batch of events, after which pending jobs are matched with offers."""


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
