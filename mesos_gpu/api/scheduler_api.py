"""What the REST interface asks of the scheduler."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from prometheus_client.registry import Collector

from mesos_gpu.engine.events import (
    BookingCancelled,
    BookingChanged,
    BookingMade,
    CheckpointTold,
    KeepAsked,
    KeepWithdrawn,
)
from mesos_gpu.engine.gpus.rolling import Rolling
from mesos_gpu.engine.room.node_amounts import NodeAmounts
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.app_event import AppEvent
from mesos_gpu.model.apps.catalog import Deployment, RootVersion
from mesos_gpu.model.apps.rollout import Plan, VersionInfo
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.arrays.array import ArrayCounts, JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.queue import Ends, LaunchDelay, QueueUse, Waiting
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.queue_plan import QueuePlan
from mesos_gpu.model.queue_share import PathShare, QueueShare
from mesos_gpu.model.queue_why import QueueWhy
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.shared_gpu import SharedGpu
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import Idle, QueueDocument
from mesos_gpu.policy.accounts.budget import Standing
from mesos_gpu.policy.accounts.sums import Row
from mesos_gpu.policy.gpus.use_series import UseHistory
from mesos_gpu.policy.nodes.levels import Fabric
from mesos_gpu.policy.room.defrag import Problem
from mesos_gpu.policy.tenancy.checks import Findings
from mesos_gpu.policy.times.hours import Span
from mesos_gpu.wire.channel.call import Call

T = TypeVar("T")


class View(Protocol):
    """The scheduler's state at one moment; only valid inside `SchedulerApi.read` and `read_copy`."""

    @property
    def jobs(self) -> Mapping[JobId, Job]: ...
    @property
    def tasks(self) -> Mapping[TaskId, Task]: ...
    @property
    def unknown(self) -> Sequence[Task]: ...
    @property
    def nodes(self) -> Mapping[AgentId, Node]: ...
    @property
    def framework_id(self) -> str | None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def master_url(self) -> str: ...
    @property
    def unsaved(self) -> str: ...
    @property
    def started_at(self) -> float: ...
    @property
    def now(self) -> float: ...
    @property
    def use_history(self) -> UseHistory: ...
    @property
    def fabric(self) -> Fabric: ...
    @property
    def default_user(self) -> str | None: ...
    @property
    def disbelieved(self) -> int: ...
    def tasks_of(self, job_id: JobId) -> Sequence[Task]: ...
    def round_of(self, job: Job) -> Sequence[Task]: ...
    def idle_of(self, job: Job) -> tuple[Idleness, Idle] | None: ...
    def made_room_for(self, job_id: JobId) -> Sequence[JobId]: ...
    def holder(self, gpu_id: GpuId) -> Task | None: ...
    def shared(self, gpu: Gpu) -> SharedGpu | None: ...

    def is_shared(self, gpu_id: GpuId) -> bool: ...

    @property
    def has_shares(self) -> bool: ...
    @property
    def drains(self) -> Collection[Drain]: ...
    def gpus(self, on: Callable[[str], bool] | None = ...) -> Sequence[GpuStatus]: ...
    def gpu_page(
        self, on: Callable[[str], bool] | None, skip: int, limit: int | None
    ) -> tuple[Sequence[GpuStatus], int]: ...
    def gpu(self, gpu_id: GpuId) -> GpuStatus | None: ...
    def drain_of(self, hostname: str) -> Drain | None: ...
    def rolling(self) -> Rolling: ...
    def node_amounts(self, agents: Collection[AgentId]) -> Mapping[AgentId, NodeAmounts]: ...
    @property
    def unused_offers(self) -> Collection[Offer]: ...
    def explain(self, job_id: JobId, *, past_offers: bool = False) -> Why: ...
    @property
    def arrays(self) -> Mapping[JobId, JobArray]: ...
    def counts_of(self, array: JobArray) -> ArrayCounts: ...
    def unmade(self, array: JobArray | None = ...) -> int: ...
    def waiting(self, most: int, sees: Callable[[Job], bool] = ...) -> Sequence[Waiting]: ...
    def wait_reasons(self, most: int) -> Mapping[str, int]: ...
    def queues(self) -> Sequence[QueueUse]: ...
    def queue_shares(self) -> Sequence[QueueShare]: ...
    def path_share(self, path: str) -> PathShare: ...
    def explain_queue(self, path: str) -> QueueWhy: ...
    def budgets(self) -> Sequence[Standing]: ...
    @property
    def bookings(self) -> Mapping[str, Booking]: ...
    def booking(self, name: str) -> Booking | None: ...
    def budget_periods(self) -> Sequence[Standing]: ...
    def unmet(self) -> Sequence[Row]: ...
    def defrag(self, wanted: Job | JobSpec) -> Problem: ...
    @property
    def root(self) -> Group: ...
    @property
    def versions(self) -> Mapping[str, VersionInfo]: ...
    @property
    def group_versions(self) -> Mapping[str, float]: ...
    @property
    def deployments(self) -> Mapping[str, Deployment]: ...
    @property
    def access_versions(self) -> Mapping[int, AccessDocument]: ...
    @property
    def queue_versions(self) -> Mapping[int, QueueDocument]: ...
    def check_queues(self, document: QueueDocument) -> Findings: ...
    def hours_of(self, document: QueueDocument) -> tuple[Span, Span | None]: ...
    def plan_queues(self, document: QueueDocument) -> QueuePlan: ...
    def check_apps(self, change: Plan) -> None: ...
    @property
    def splits(self) -> Mapping[str, TrafficSplit]: ...
    def serving(self, app_id: str) -> Sequence[Task]: ...
    def past(self, app_id: str) -> Sequence[tuple[float, App]]: ...
    @property
    def roots(self) -> Sequence[RootVersion]: ...
    def instances_of(self, app_id: str) -> Sequence[Job]: ...
    def ends_of(self, app_id: str) -> Ends | None: ...
    def last_failures(self, app_ids: Collection[str]) -> Mapping[str, Job]: ...
    @property
    def launch_delays(self) -> Mapping[str, LaunchDelay]: ...
    def check_results(self, task_id: TaskId) -> Sequence[CheckHealth]: ...
    def readiness_of(self, task_id: TaskId) -> Readiness | None: ...


def is_used(view: View, status: GpuStatus) -> bool:
    """Whether a task holds the GPU, or several share it; as in Mesos, one that is open to shares is used."""
    return view.holder(status.gpu.id) is not None or view.is_shared(status.gpu.id)


def most_for_shares(view: View) -> dict[str, int]:
    """The most memory in MiB that a GPU of each model has for shares."""
    most_mib: dict[str, int] = {}
    for node in view.nodes.values():
        for gpu in node.gpus:
            if gpu.sharing is not None:
                most_mib[gpu.model] = max(most_mib.get(gpu.model, 0), gpu.sharing.memory_mib)
    return most_mib


class Happened(Protocol):
    """The latest events; from any thread. Numbers grow from one to the next."""

    @property
    def first(self) -> int:
        """The number of the oldest one that is kept; 0: there is none."""

    @property
    def last(self) -> int:
        """The number of the latest one; 0: there is none."""

    def after(self, number: int, most: int = ...) -> Sequence[LogEvent]:
        """At most so many that come after the one of that number, oldest first."""


class SchedulerApi(Protocol):
    """The calls of the scheduler; every future is resolved after what it did is saved."""

    @property
    def happened(self) -> Happened:
        """What has happened of late."""

    @property
    def unsaved(self) -> NoRoom | None:
        """The error why the state cannot be saved now; None if it can be. For any thread."""

    @property
    def journal_problem(self) -> str:
        """The reason why the journal is larger than it should be, or has ended; "" if neither. For any thread."""

    @property
    def meter(self) -> Collector:
        """What it counts and times of itself; from any thread."""

    @property
    def access(self) -> AccessDocument:
        """Who may do what, as it is now; from any thread."""

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id, as they are now; from any thread."""

    def set_access(self, document: AccessDocument, expected_version: int) -> Future[AccessDocument]:
        """Let who may do what be as `document` says, whose version and time are not looked at; the future's is the
        version that it became. It may raise `Conflict`: the latest is not `expected_version`."""

    def set_queues(
        self, document: QueueDocument, expected_version: int, reclaim_after_s: float | None = None
    ) -> Future[QueueDocument]:
        """Let the tree of queues be as `document` says, whose version and time are not looked at; the future's is the
        version that it became. It may raise `Conflict`: the latest is not `expected_version`, or jobs are in a queue
        that the document leaves out or puts others below."""

    def grant_budget(self, queue: str, user: str, amount: int) -> Future[None]:
        """Give a budget more in its current period, thousandths of cost times milliseconds; negative: set it aside.
        `user`: "*": of all. The future may raise `NotFound`."""

    def book(self, event: BookingMade | BookingChanged | BookingCancelled) -> Future[Booking]:
        """Make, change or cancel a booking; the future's is as it is then. It may raise `NotFound`, `NotAccepted`,
        `TooMuch`, or `Conflict`, which says when there would be room."""

    def create_token(self, token: Token, lifetime_s: float, until: float | None = None) -> Future[Token]:
        """Keep a token that expires `lifetime_s` from now, and at `until` at the latest, whatever its own times say;
        the future may raise `Conflict` (what it was made with has ended) or `TooMuch`."""

    def revoke_token(self, token_id: str) -> Future[None]:
        """Forget a token, and those that were made with it; the future may raise `NotFound`."""

    def note_token_use(self, token_id: str, address: str) -> None:
        """A token has proved a name, from `address` ("": a Unix socket); at each request, of which few are kept."""

    def submit(self, spec: JobSpec, owner: str = "") -> Future[Job]:
        """Queue a job of who has that name."""

    def kill(self, job_id: JobId, *, wipe: bool = False, indexes: str | None = None) -> Future[Job]:
        """Ask for a job's end; the future may raise `NotFound`. `wipe`: an instance's successor gets another name."""

    def resize(self, job_id: JobId, patch: Mapping[str, int | None], *, restart: bool = False) -> Future[Job]:
        """Ask for other shares of a running job, as `ResizeRequested` says; the future may raise `NotFound` or
        `Conflict`."""

    def withdraw_resize(self, job_id: JobId) -> Future[Job]:
        """Let a job keep the shares that it had, as `ResizeWithdrawn` says; the future may raise `NotFound` or
        `Conflict`."""

    def tell_of(self, event: CheckpointTold | KeepAsked | KeepWithdrawn) -> Future[Job]:
        """Take in that a job has kept its work, or shall be kept from being ended for idle GPUs, or no longer. The
        future raises `NotFound`, `Conflict` where that cannot be of the job as it is, and `NotAccepted` where it may
        not be kept so long."""

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Call a task's executor to a channel; `answers` is told before, on the engine's thread, how it will prove that
        it was called. The future may raise `Conflict`: it does not run, or has no secret; or `Unavailable`."""

    def drain(
        self, target: Target, name: str, reason: str, *, by: str = "", deadline_s: float | None = None
    ) -> Future[None]:
        """Take a GPU (by UUID) or a node (by host name) out; the future may raise `NotFound`."""

    def undrain(self, target: Target, name: str, *, by: str = "") -> Future[None]:
        """Give it back; the future may raise `NotFound` or `Conflict`."""

    def reset(self, gpu_id: GpuId, reason: str, *, by: str = "") -> Future[str]:
        """Ask a GPU's node to reset it; the request's id. The future may raise `NotFound` or `Conflict`."""

    def adopt(self, task_id: TaskId) -> Future[None]:
        """Take up an unknown task; the future may raise `NotFound` or `Conflict`."""

    def kill_unknown(self, task_id: TaskId) -> Future[None]:
        """End an unknown task; the future may raise `NotFound`."""

    def change_apps(
        self,
        target: Callable[[Group], Group],
        *,
        force: bool = False,
        restarts: frozenset[str] = frozenset(),
        kill: Mapping[str, tuple[str, ...]] = ...,
    ) -> Future[Deployment | None]:
        """Make the tree of apps what `target` makes of it; None: nothing changes. The future may raise `AppLocked`,
        `BadConfiguration`, and what `target` raises."""

    def cancel_deployment(self, deployment_id: str, *, force: bool = False) -> Future[Deployment | None]:
        """Undo a deployment by another one, or with `force` end it; the future may raise `NotFound`."""

    def reset_delay(self, app_id: str) -> Future[None]:
        """Let an app's next launch be at once; the future may raise `NotFound`."""

    def set_split(self, split: TrafficSplit) -> Future[None]:
        """Make a named service what `split` says."""

    def drop_split(self, name: str) -> Future[None]:
        """Forget a named service; the future may raise `NotFound`."""

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` on the engine's thread: it must be quick, and only read."""

    def read_copy(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` over a copy of the state, on another thread than the engine; it may take long."""

    def tell(self, callback: Callable[[Sequence[AppEvent]], None]) -> Callable[[], None]:
        """Call back, on the engine's thread, with what happens to apps; returns the way out."""

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call back with (id, version) at each change; returns the way out."""
