"""Events of apps and their tasks, from which the events of Marathon's event stream are made."""

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
    """An instance of an app. `version`: value of the app's `last_config_change_at` from which it was started."""

    app: str
    instance: str
    version: float


@dataclass(frozen=True, slots=True)
class InstanceChanged:
    """Change of an instance's condition, named as in Marathon. Without agent, the instance was not launched."""

    subject: Subject
    condition: str
    agent_id: AgentId | None
    host: str | None


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """Change of a task's state."""

    subject: Subject
    task: Task


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """Change of a task's overall health; `healthy` has a value only if every check has a result."""

    subject: Subject
    task_id: TaskId
    healthy: bool | None


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """A failed check that counts towards the limit of consecutive failures."""

    subject: Subject
    task_id: TaskId
    check: HealthCheck


@dataclass(frozen=True, slots=True)
class UnhealthyKilled:
    """Kill of a task by the scheduler because its health checks failed too often."""

    subject: Subject
    task: Task
    reason: str


@dataclass(frozen=True, slots=True)
class ChecksAdded:
    """Addition of a health check to an app by a new version."""

    app: str
    version: float
    check: HealthCheck


@dataclass(frozen=True, slots=True)
class ChecksRemoved:
    """Removal or replacement of the health checks of an app."""

    app: str


class Stage(Enum):
    """Stage of a deployment, under the names of Marathon's events."""

    STEP_BEGUN = "deployment_info"
    STEP_DONE = "deployment_step_success"
    STEP_FAILED = "deployment_step_failure"
    DONE = "deployment_success"
    FAILED = "deployment_failed"


@dataclass(frozen=True, slots=True)
class DeploymentMoved:
    """Arrival of a deployment at a stage; its `step` is the current step."""

    stage: Stage
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class AppTerminated:
    """End of the last instance of a deleted app."""

    app: str


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Change of the tree of apps below `group`, or a refused change with the reason in `problem`."""

    group: str
    version: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """Accepted subscription with the master; without `framework_id` if the framework had its id before."""

    framework_id: str | None
    master_url: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """Loss of the connection to the master."""


@dataclass(frozen=True, slots=True)
class StrangerEnded:
    """End of a task of a former app that the scheduler no longer holds in its state."""

    app: str
    instance: str
    condition: str


@dataclass(frozen=True, slots=True)
class AppPosted:
    """Acceptance of an app definition sent by a client."""

    client: str
    uri: str
    app: App
    info: VersionInfo


@dataclass(frozen=True, slots=True)
class Attached:
    """Begin or end of a client's subscription to events."""

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
    """Something that happened to an app or its tasks. `at`: time in seconds since the epoch."""

    at: float
    what: What
