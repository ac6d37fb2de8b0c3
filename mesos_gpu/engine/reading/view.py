"""View of the engine's state, which functions of this package read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mesos_gpu.engine.explain.copies import copy_for_readers
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.apps.catalog import AppCatalog, Deployment, RootVersion
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.gpus.use_series import UseHistory
from mesos_gpu.policy.nodes.levels import Fabric
from mesos_gpu.policy.tenancy.tree import Tree


@dataclass(frozen=True, slots=True)
class View:
    """State of the engine at one moment, valid only inside the function that is given to `read`.

    Only functions of this package use `state` and `settings`; others read the properties, which are not copies.

    Attributes:
        state: State of the engine.
        settings: Settings of the engine.
        now: Time in seconds since the epoch.
        unsaved: Reason why nothing can be saved now, or "".
        use_history: Use of GPUs over time.
    """

    state: State
    settings: Settings
    now: float
    unsaved: str = ""
    use_history: UseHistory = field(default_factory=UseHistory)

    def copied(self) -> "View":
        """Return a view of a copy of the state, which stays valid; the use of GPUs over time is not copied."""
        return replace(self, state=copy_for_readers(self.state))

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Jobs that are remembered, oldest first."""
        return self.state.work.jobs

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Launches of these jobs, and live tasks of monitors."""
        return self.state.work.tasks

    @property
    def arrays(self) -> Mapping[JobId, JobArray]:
        """Job arrays that are remembered, oldest first."""
        return self.state.work.arrays

    @property
    def nodes(self) -> Mapping[AgentId, Node]:
        """Agents that have offered something, until they have been lost for a day."""
        return self.state.cluster.nodes

    @property
    def fabric(self) -> Fabric:
        """Groups of nodes at the levels of the fabric."""
        return self.state.cluster.agents.fabric(self.settings.placing.levels, self.nodes)

    @property
    def drains(self) -> Mapping[tuple[Target, str], Drain]:
        """Drains by target and name, also of nodes and GPUs that are away."""
        return self.state.cluster.drains

    @property
    def bookings(self) -> Mapping[str, Booking]:
        """Bookings by id, also those that ended lately."""
        return self.state.calendar.bookings

    @property
    def catalog(self) -> AppCatalog:
        """Apps as users want them, and their versions."""
        return self.state.apps.catalog

    @property
    def roots(self) -> Sequence[RootVersion]:
        """Earlier trees of groups, oldest first."""
        return self.state.apps.roots

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """Deployments in progress, by id."""
        return self.state.apps.deployments

    @property
    def splits(self) -> Mapping[str, TrafficSplit]:
        """Named services, by name."""
        return self.state.apps.splits

    @property
    def access_versions(self) -> Mapping[int, AccessDocument]:
        """Versions of the access document, oldest first."""
        return self.state.rights.access_versions

    @property
    def queue_versions(self) -> Mapping[int, QueueDocument]:
        """Versions of the document of queues, oldest first."""
        return self.state.quota.queue_versions

    @property
    def tree(self) -> Tree:
        """Tree of queues with the figures of the current hours."""
        return self.state.quota.tree

    @property
    def framework_id(self) -> str | None:
        """Id of the framework, or None before the first registration."""
        return self.state.mesos.framework_id

    @property
    def connected(self) -> bool:
        """Whether the master's event stream is up."""
        return self.state.mesos.connected

    @property
    def master_url(self) -> str:
        """URL of the leading master."""
        return self.state.mesos.master_url

    @property
    def disbelieved(self) -> int:
        """Number of status updates since the start that were not believed."""
        return self.state.mesos.disbelieved

    @property
    def started_at(self) -> float:
        """Start of the scheduler process, in seconds since the epoch."""
        return self.state.started_at

    @property
    def default_user(self) -> str | None:
        """User of jobs that name none, or None for the user of executors."""
        return self.settings.programs.default_user
