"""What others may read of the engine's state. Nothing is decided here: what takes thought is asked of the engine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from mesos_gpu.engine.apps.delays import ends_of, last_failures, launch_delays
from mesos_gpu.engine.apps.deploying import check_change
from mesos_gpu.engine.apps.splits import serving
from mesos_gpu.engine.bookings.documents import beside_bookings, refuse_unusable
from mesos_gpu.engine.calendar.booked import booking_called
from mesos_gpu.engine.explain.arrays import running_in, why_in_array
from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.explain.copies import copy_for_readers
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.explain.shares import path_share, queue_shares
from mesos_gpu.engine.explain.trial import reclaims_of
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.gpus.gpu_status import reported
from mesos_gpu.engine.gpus.rolling import Rolling, rolling
from mesos_gpu.engine.gpus.shared_gpus import shared_gpu
from mesos_gpu.engine.match.moves import problem_of
from mesos_gpu.engine.queue.budgets import all_periods, all_standing
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.room.node_amounts import NodeAmounts, amounts_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.accounts import unmet
from mesos_gpu.engine.tenancy.document import found_of, refuse_homeless
from mesos_gpu.engine.tenancy.idle import idle_of
from mesos_gpu.engine.tenancy.planned import planned
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.apps.app import App, Group
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
from mesos_gpu.model.nodes.drain import Drain
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.model.queue_plan import QueuePlan
from mesos_gpu.model.queue_share import PathShare, QueueShare
from mesos_gpu.model.queue_why import QueueWhy
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
from mesos_gpu.policy.times.hours import Span, span_at


class StateView:
    """The state at one moment; valid only inside the function that `Daemon.read` runs."""

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        unsaved: str = "",
        use_history: UseHistory | None = None,
    ) -> None:
        """Wrap; nothing is copied. `unsaved`: why nothing can be saved now; "": it can. `use_history`: of cards."""
        self._state, self._settings, self._now = state, settings, now
        self.unsaved = unsaved
        self.use_history = use_history or UseHistory()

    def copied(self) -> "StateView":
        """Return a view of a copy of the state, which stays valid; the past use of cards is not copied."""
        made = copy_for_readers(self._state)
        return StateView(made, self._settings, self._now, self.unsaved, self.use_history)

    @property
    def now(self) -> float:
        """The moment, in seconds since the epoch."""
        return self._now

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Every job that is remembered, oldest first."""
        return self._state.work.jobs

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Every launch of those jobs, and the monitors that live."""
        return self._state.work.tasks

    @property
    def unknown(self) -> Sequence[Task]:
        """Tasks that wait for an operator's word."""
        return [self._state.work.tasks[task_id] for task_id in self._state.work.unknown]

    @property
    def nodes(self) -> Mapping[AgentId, Node]:
        """Every agent that ever offered something, until it is lost for a day."""
        return self._state.cluster.nodes

    @property
    def fabric(self) -> Fabric:
        """The groups of nodes at the levels of the fabric."""
        return self._state.cluster.agents.fabric(self._settings.levels, self._state.cluster.nodes)

    @property
    def default_user(self) -> str | None:
        """The user of jobs that name none; None: the executors' own."""
        return self._settings.default_user

    @property
    def framework_id(self) -> str | None:
        """None before the first registration."""
        return self._state.mesos.framework_id

    @property
    def connected(self) -> bool:
        """Whether the master's event stream is up."""
        return self._state.mesos.connected

    @property
    def master_url(self) -> str:
        """The leading master's."""
        return self._state.mesos.master_url

    @property
    def started_at(self) -> float:
        """When this scheduler process started."""
        return self._state.started_at

    @property
    def disbelieved(self) -> int:
        """Status updates since the start that were not believed."""
        return self._state.mesos.disbelieved

    @property
    def root(self) -> Group:
        """All apps, as they are wanted."""
        return self._state.apps.catalog.root

    @property
    def versions(self) -> Mapping[str, VersionInfo]:
        """The versions of each app, by its id."""
        return self._state.apps.catalog.versions

    @property
    def group_versions(self) -> Mapping[str, float]:
        """By group id: when something in it changed last; 0, or missing, while it never had anything."""
        return self._state.apps.catalog.group_versions

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """The deployments under way."""
        return self._state.apps.deployments

    @property
    def access_versions(self) -> Mapping[int, AccessDocument]:
        """Versions of who may do what, oldest first."""
        return self._state.rights.access_versions

    @property
    def queue_versions(self) -> Mapping[int, QueueDocument]:
        """Versions of the tree of queues, oldest first."""
        return self._state.quota.queue_versions

    def idle_of(self, job: Job) -> tuple[Idleness, Idle] | None:
        """How idle a job is known to be, and the rules for it; None: it is not, and nobody keeps it."""
        return idle_of(self._state, job, self._now)

    def check_queues(self, document: QueueDocument) -> Findings:
        """Hold a tree of queues against the jobs, bookings and nodes that there are.

        Raises:
            Conflict: Jobs would be in no leaf, or nobody could use what is booked.
        """
        refuse_homeless(self._state, self._settings, document)
        refuse_unusable(self._state, document)
        of_queues = found_of(self._state, self._settings, document, self._now)
        return beside_bookings(self._state, document, of_queues, self._now)

    def hours_of(self, document: QueueDocument) -> tuple[Span, Span | None]:
        """What the hours of a tree of queues make of it now, and then; None: it stays so."""
        now = span_at(document, self._now)
        return now, None if now.until == inf else span_at(document, now.until)

    def plan_queues(self, document: QueueDocument) -> QueuePlan:
        """What a tree of queues would change, were it the next."""
        asked = self._state, self._settings, document, self._now
        return replace(planned(self._state, document, self._now), reclaims=reclaims_of(*asked))

    def check_apps(self, change: Plan) -> None:
        """Hold a change of apps against limits, and against the tree of queues.

        Raises:
            BadConfiguration, NotAccepted, TooMuch: It would be refused.
        """
        check_change(self._state, self._settings, self._now, change)

    @property
    def splits(self) -> Mapping[str, TrafficSplit]:
        """Named services, by name."""
        return self._state.apps.splits

    def serving(self, app_id: str) -> Sequence[Task]:
        """The tasks of an app that requests may go to."""
        return serving(self._state, app_id)

    def past(self, app_id: str) -> Sequence[tuple[float, App]]:
        """Every version of an app, oldest first."""
        return [(version.version, version.app) for version in self._state.apps.app_versions.get(app_id, ())]

    @property
    def roots(self) -> Sequence[RootVersion]:
        """The tree of groups as it was, oldest first."""
        return self._state.apps.roots

    def instances_of(self, app_id: str) -> Sequence[Job]:
        """The instances of an app that have not ended."""
        return [self._state.work.jobs[job_id] for job_id in self._state.apps.instances.get(app_id, ())]

    def last_failures(self, app_ids: Collection[str]) -> Mapping[str, Job]:
        """By app: the latest of its instances that ended by itself, and badly, or because it was not healthy. Apps
        without one are left out."""
        return last_failures(self._state, app_ids)

    def ends_of(self, app_id: str) -> Ends | None:
        """How the instances of an app ended by themselves of late; None: none did."""
        return ends_of(self._state, app_id, self._now)

    @property
    def launch_delays(self) -> Mapping[str, LaunchDelay]:
        """By app: those in force, of apps that want more instances than they have."""
        return launch_delays(self._state, self._now)

    def check_results(self, task_id: TaskId) -> Sequence[CheckHealth]:
        """Results of each check that the scheduler makes of a task, in its app's order; empty: there is no result
        yet."""
        return self._state.apps.check_results.get(task_id, ())

    def readiness_of(self, task_id: TaskId) -> Readiness | None:
        """What its readiness check found last; None: it was not made since the scheduler started."""
        return self._state.apps.readiness.get(task_id)

    def round_of(self, job: Job) -> Sequence[Task]:
        """The tasks of a job's latest launch, by rank."""
        return self._state.work.round_of(job)

    def tasks_of(self, job_id: JobId) -> Sequence[Task]:
        """Every launch of a job, oldest first."""
        return self._state.work.tasks_of(job_id)

    def made_room_for(self, job_id: JobId) -> Sequence[JobId]:
        """The jobs that were ended, or are told to end, so that a job has room; as far as they are remembered."""
        tasks = self._state.work.tasks
        told = (tasks.get(task_id) for task_id in self._state.work.made_room.get(job_id, ()))
        ids = {task.job_id for task in told if task is not None and task.preempted_for == job_id}
        return sorted(each for each in ids if each is not None)

    def holder(self, gpu_id: GpuId) -> Task | None:
        """The task that holds all of a GPU."""
        return self._state.holder(gpu_id)

    def shared(self, gpu: Gpu) -> SharedGpu | None:
        """What is granted of a GPU that tasks share; None: it is not shared."""
        state = self._state
        if gpu.id not in state.gpus.sharers and gpu.id not in state.gpus.covers:  # of thousands, nearly all
            return None
        return shared_gpu(state, self._settings, gpu)

    def is_shared(self, gpu_id: GpuId) -> bool:
        """Whether a GPU is open to shares."""
        return gpu_id in self._state.gpus.sharers or gpu_id in self._state.gpus.covers

    @property
    def has_shares(self) -> bool:
        """Whether any GPU is open to shares."""
        return bool(self._state.gpus.sharers or self._state.gpus.covers)

    def gpus(self, on: Callable[[str], bool] | None = None) -> Sequence[GpuStatus]:
        """Every GPU once, with what operators say of it; unknown while its node says nothing. `on`: whether those of a
        host are asked for, by its name."""
        return reported(self._state, self._settings, self._now, self._state.cluster.placed(on).values())

    def gpu_page(
        self, on: Callable[[str], bool] | None, skip: int, limit: int | None
    ) -> tuple[Sequence[GpuStatus], int]:
        """A part of the same, by host name and minor, and how many there are in all. `limit` None: all after `skip`."""
        placed = self._state.cluster.placed(on)
        places = sorted(placed.values(), key=lambda place: (place[0].hostname, place[1].minor))
        part = places[skip : None if limit is None else skip + limit]
        return reported(self._state, self._settings, self._now, part), len(placed)

    def gpu(self, gpu_id: GpuId) -> GpuStatus | None:
        """A GPU, as in the list of all; None: no node has reported it."""
        place = self._state.cluster.place_of(gpu_id)
        return None if place is None else reported(self._state, self._settings, self._now, [place])[0]

    def drain_of(self, hostname: str) -> Drain | None:
        """The drain of a node."""
        return self._state.cluster.drain_of(hostname)

    def rolling(self) -> Rolling:
        """How far node monitors are replaced."""
        return rolling(self._state, self._settings, self._now)

    @property
    def drains(self) -> Collection[Drain]:
        """Every drain, also of what is away."""
        return self._state.cluster.drains.values()

    def node_amounts(self, agents: Collection[AgentId]) -> Mapping[AgentId, NodeAmounts]:
        """Return CPUs and memory of some nodes."""
        return amounts_of(self._state, self._settings, agents)

    @property
    def unused_offers(self) -> Collection[Offer]:
        """The latest of each agent of which nothing was used."""
        return self._state.cluster.unused.values()

    def explain(self, job_id: JobId, *, past_offers: bool = False) -> Why:
        """Why the job waits; with `past_offers`, of an agent that offers nothing now by what it offered last.

        Raises:
            NotFound: There is no such job.
        """
        asked, job = (self._state, self._settings, self._now), self._state.work.jobs.get(job_id)
        if job is None:
            return why_in_array(*asked, job_id, past_offers=past_offers)
        return why_of(*asked, job, past_offers=past_offers)

    @property
    def arrays(self) -> Mapping[JobId, JobArray]:
        """Every job array that is remembered, oldest first."""
        return self._state.work.arrays

    def counts_of(self, array: JobArray) -> ArrayCounts:
        """How many tasks of an array are how far."""
        return self._state.work.members.counts(array, running_in(self._state, array))

    def unmade(self, array: JobArray | None = None) -> int:
        """How many tasks of an array, or of all, wait of which there is no job."""
        known = self._state.work.members.unmade
        return sum(known.values()) if array is None else known.get(array.id, 0)

    def _forecast(self) -> Forecast:
        asked = self._state, self._settings, self._now
        return Forecast(*asked, standing_of(*asked), Coming(*asked))

    def waiting(self, most: int, sees: Callable[[Job], bool] = lambda _: True) -> Sequence[Waiting]:
        """The first `most` pending jobs that somebody sees, in the order in which they are tried."""
        return self._forecast().waiting(most, sees)

    def wait_reasons(self, most: int) -> Mapping[str, int]:
        """How many of the first `most` pending jobs wait for what, as `Forecast.reasons` has it."""
        return self._forecast().reasons(most)

    def queues(self) -> Sequence[QueueUse]:
        """Every queue that has a limit or a pending job."""
        return self._forecast().queues()

    def queue_shares(self) -> Sequence[QueueShare]:
        """Every queue of the tree in every pool that has GPUs; without a tree there is none."""
        return queue_shares(self._state, self._settings, self._now)

    def path_share(self, path: str) -> PathShare:
        """What a queue's share follows from; raises `NotFound`."""
        return path_share(self._state, self._settings, path, self._now)

    def explain_queue(self, path: str) -> QueueWhy:
        """Why jobs of a queue wait; raises `NotFound`."""
        return queue_why(self._state, self._settings, path, self._now)

    @property
    def bookings(self) -> Mapping[str, Booking]:
        """Bookings by id, those that ended of late too."""
        return self._state.calendar.bookings

    def booking(self, name: str) -> Booking | None:
        """The booking of that id, or of that name if it has not ended; None: there is none."""
        return booking_called(self._state, name)

    def budgets(self) -> Sequence[Standing]:
        """How each budget stands that is a queue's, or that a user has paid from."""
        return all_standing(self._state, self._now)

    def unmet(self) -> Sequence[Row]:
        """What jobs wait for that have not started."""
        return unmet(self._state, self._now)

    def budget_periods(self) -> Sequence[Standing]:
        """How each period of a budget ended that is kept, and how the current one stands."""
        return all_periods(self._state, self._now)

    def defrag(self, wanted: Job | JobSpec) -> Problem:
        """What a plan that makes room needs, for a job or for a request that nobody has sent."""
        if isinstance(wanted, JobSpec):
            wanted = Job(JobId("plan"), wanted, self._now, self._state.work.next_sequence)
        return problem_of(self._state, self._settings, self._now, wanted)
