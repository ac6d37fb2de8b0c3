"""Events of apps and their tasks, as listeners are told of them: what is behind the events of Marathon."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Subject:
    """An instance of an app. `version`: the app's `last_config_change_at` that it was started from."""

    app: str
    instance: str
    version: float


@dataclass(frozen=True, slots=True)
class InstanceChanged:
    """An instance came into another condition, under Marathon's name; no agent: it was not launched."""

    subject: Subject
    condition: str
    agent_id: AgentId | None
    host: str | None


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task came into another state."""

    subject: Subject
    task: Task


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """All checks of a task together say something else; None: not all were made."""

    subject: Subject
    task_id: TaskId
    healthy: bool | None


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """A check has failed once more, in a way that counts."""

    subject: Subject
    task_id: TaskId
    check: HealthCheck


@dataclass(frozen=True, slots=True)
class UnhealthyKilled:
    """The scheduler ends a task whose checks failed too often."""

    subject: Subject
    task: Task
    reason: str


@dataclass(frozen=True, slots=True)
class ChecksAdded:
    """A version of an app has this check, and the one before did not have the same ones."""

    app: str
    version: float
    check: HealthCheck


@dataclass(frozen=True, slots=True)
class ChecksRemoved:
    """An app's checks are not made any more, or others are."""

    app: str


class Stage(Enum):
    """The stage of a deployment, under Marathon's names of the events."""

    STEP_BEGUN = "deployment_info"
    STEP_DONE = "deployment_step_success"
    STEP_FAILED = "deployment_step_failure"
    DONE = "deployment_success"
    FAILED = "deployment_failed"


@dataclass(frozen=True, slots=True)
class DeploymentMoved:
    """A deployment came to a stage; its `step` is the one that this is about."""

    stage: Stage
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class AppTerminated:
    """An app that was deleted has no instance any more."""

    app: str


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """The tree of apps is another one, somewhere below `group`; `problem`: why it is not, though it was asked for."""

    group: str
    version: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """The master took the scheduler's subscription; no framework id: it had one before."""

    framework_id: str | None
    master_url: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The subscription broke."""


@dataclass(frozen=True, slots=True)
class StrangerEnded:
    """Mesos says that a task ended that was an app's once, and is not known any more."""

    app: str
    instance: str
    condition: str


@dataclass(frozen=True, slots=True)
class AppPosted:
    """A client sent an app's definition, and it was taken."""

    client: str
    uri: str
    app: App
    info: VersionInfo


@dataclass(frozen=True, slots=True)
class Attached:
    """Somebody listens to events, or does not any more."""

    client: str
    left: bool = False


What = (
    InstanceChanged
    | TaskChanged
    | HealthChanged
    | CheckFailed
    | UnhealthyKilled
    | ChecksAdded
    | ChecksRemoved
    | DeploymentMoved
    | AppTerminated
    | GroupChanged
    | Registered
    | Disconnected
    | StrangerEnded
    | AppPosted
    | Attached
)


@dataclass(frozen=True, slots=True)
class AppEvent:
    """Something that happened to an app or its tasks. `at`: seconds since the epoch."""

    at: float
    what: What
