"""What is to be written to the store, as data."""

from dataclasses import dataclass, field

from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, RootVersion
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task


@dataclass(frozen=True, slots=True)
class SaveFramework:
    """Remember the framework id: a restart must be a failover, not a new framework."""

    framework_id: str


@dataclass(frozen=True, slots=True)
class SaveTrust:
    """The master's tasks were looked through: nothing that a state that may be old does not know is launched again."""


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Insert or replace."""

    job: Job


@dataclass(frozen=True, slots=True)
class SaveTask:
    """Insert or replace."""

    task: Task


@dataclass(frozen=True, slots=True)
class SaveNode:
    """Insert or replace."""

    node: Node


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Delete a job that ended long ago, and its tasks."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """Delete the record of a monitor that ended."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Delete a node that was lost long ago."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class SaveDrain:
    """Insert or replace."""

    drain: Drain


@dataclass(frozen=True, slots=True)
class ForgetDrain:
    """Delete: it is over."""

    target: Target
    name: str


@dataclass(frozen=True, slots=True)
class SaveCard:
    """Insert or replace."""

    card: Card


@dataclass(frozen=True, slots=True)
class SaveServices:
    """Replace all that is wanted of apps."""

    services: AppCatalog


@dataclass(frozen=True, slots=True)
class SaveAppVersion:
    """Insert or replace."""

    found: AppVersion


@dataclass(frozen=True, slots=True)
class ForgetAppVersion:
    """Delete: there are enough later ones, or the app is gone."""

    app_id: str
    version: float


@dataclass(frozen=True, slots=True)
class SaveRootVersion:
    """Insert or replace."""

    found: RootVersion


@dataclass(frozen=True, slots=True)
class ForgetRootVersion:
    """Delete: there are enough later ones."""

    version: float


@dataclass(frozen=True, slots=True)
class SaveDeployment:
    """Insert or replace."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class ForgetDeployment:
    """Delete: it is over."""

    id: str
    done: bool  # or it was ended before it was through


@dataclass(frozen=True, slots=True)
class SaveSplit:
    """Insert or replace."""

    split: TrafficSplit


@dataclass(frozen=True, slots=True)
class ForgetSplit:
    """Delete: a user does not want that service any more."""

    name: str


SaveOfApps = (
    SaveServices
    | SaveAppVersion
    | ForgetAppVersion
    | SaveRootVersion
    | ForgetRootVersion
    | SaveDeployment
    | ForgetDeployment
    | SaveSplit
    | ForgetSplit
)
Save = (
    SaveFramework
    | SaveTrust
    | SaveJob
    | SaveTask
    | SaveNode
    | SaveDrain
    | SaveCard
    | ForgetJob
    | ForgetTask
    | ForgetNode
    | ForgetDrain
    | SaveOfApps
)


@dataclass(frozen=True, slots=True)
class Saved:
    """All that a store holds: jobs by their sequence, tasks by their launch."""

    framework_id: str | None
    jobs: tuple[Job, ...]
    tasks: tuple[Task, ...]
    nodes: tuple[Node, ...]
    drains: tuple[Drain, ...] = ()
    cards: tuple[Card, ...] = ()
    services: AppCatalog = field(default_factory=AppCatalog)
    app_versions: tuple[AppVersion, ...] = ()  # by time
    deployments: tuple[Deployment, ...] = ()
    splits: tuple[TrafficSplit, ...] = ()  # by name
    roots: tuple[RootVersion, ...] = ()  # by time
    doubtful: bool = (
        False  # it may be older than what runs: nothing is launched before the master's tasks are known
    )


def subject(save: Save) -> tuple[str, str]:
    """What the save is about: of several saves of one subject only the latest matters."""
    match save:
        case SaveFramework():
            return "framework", ""
        case SaveTrust():
            return "trust", ""
        case SaveJob(job):
            return "job", job.id
        case ForgetJob(job_id):
            return "job", job_id
        case SaveTask(task):
            return "task", task.id
        case ForgetTask(task_id):
            return "task", task_id
        case SaveNode(node):
            return "node", node.id
        case ForgetNode(agent_id):
            return "node", agent_id
        case SaveDrain(drain):
            return f"drain of {drain.target.value}", drain.name
        case ForgetDrain(target, name):
            return f"drain of {target.value}", name
        case SaveCard(card):
            return "card", card.id
        case _:
            return _about_apps(save)


def _about_apps(save: SaveOfApps) -> tuple[str, str]:
    match save:
        case SaveServices():
            return "services", ""
        case SaveAppVersion(found):
            return "app version", f"{found.app.id} {found.version}"
        case ForgetAppVersion(app_id, version):
            return "app version", f"{app_id} {version}"
        case SaveRootVersion(root):
            return "root version", str(root.version)
        case ForgetRootVersion(version):
            return "root version", str(version)
        case SaveDeployment(deployment):
            return "deployment", deployment.id
        case ForgetDeployment(id):
            return "deployment", id
        case SaveSplit(split):
            return "split", split.name
        case ForgetSplit(name):
            return "split", name
