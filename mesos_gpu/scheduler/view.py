"""What others may read of the engine's state."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from mesos_gpu.engine.apps.delays import ends_of, launch_delays
from mesos_gpu.engine.apps.splits import serving
from mesos_gpu.engine.gpus.standing import standing
from mesos_gpu.engine.match.moves import problem_of
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.queue.line import ask_of
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.outlook import Outlook
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.apps.service import Deployment, RootVersion
from mesos_gpu.model.apps.split import Split
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import CheckHealth, Readiness
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobSpec, JobState
from mesos_gpu.model.jobs.queue import Ends, LaunchDelay, QueueUse, Waiting
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.drain import Drain
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.node import Node, Standing
from mesos_gpu.model.nodes.offer import Offer, total
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.explain.estimate import gpus_of
from mesos_gpu.policy.explain.hurdles import OFF_GPUS, NodeView
from mesos_gpu.policy.explain.why import QueueView, explain
from mesos_gpu.policy.queueing.queue import position_of
from mesos_gpu.policy.room.defrag import Problem
from mesos_gpu.policy.room.reservation import Reservation


def _beyond(job: Job, limit: int | None) -> str:
    """Why its queue's limit never lets it start."""
    wanted = job.spec.gpus_in_all
    if limit is None or wanted <= limit:
        return ""
    return f"queue {job.spec.queue} may hold {gpus_of(limit)}, and it asks for {wanted}"


class StateView:
    """The state at one moment; valid only inside the function that `Daemon.read` runs."""

    def __init__(self, state: State, settings: Settings, now: float, unsaved: str = "") -> None:
        """Wrap; nothing is copied. `unsaved`: why nothing can be saved now; "": it can."""
        self._state, self._settings, self._now = state, settings, now
        self.unsaved = unsaved

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Every job that is remembered, oldest first."""
        return self._state.jobs

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Every launch of those jobs, and the monitors that live."""
        return self._state.tasks

    @property
    def unknown(self) -> Sequence[Task]:
        """Tasks that wait for an operator's word."""
        return [self._state.tasks[task_id] for task_id in self._state.unknown]

    @property
    def nodes(self) -> Mapping[AgentId, Node]:
        """Every agent that ever offered something, until it is lost for a day."""
        return self._state.nodes

    @property
    def default_user(self) -> str | None:
        """Of jobs that name none; None: the executors' own."""
        return self._settings.default_user

    @property
    def framework_id(self) -> str | None:
        """None before the first registration."""
        return self._state.framework_id

    @property
    def connected(self) -> bool:
        """Whether the master's event stream is up."""
        return self._state.connected

    @property
    def master_url(self) -> str:
        """The leading master's."""
        return self._state.master_url

    @property
    def started_at(self) -> float:
        """When this scheduler process started."""
        return self._state.started_at

    @property
    def disbelieved(self) -> int:
        """Status updates since the start that were not believed."""
        return self._state.disbelieved

    @property
    def root(self) -> Group:
        """All apps, as they are wanted."""
        return self._state.services.root

    @property
    def versions(self) -> Mapping[str, VersionInfo]:
        """Of each app, by its id."""
        return self._state.services.versions

    @property
    def group_versions(self) -> Mapping[str, float]:
        """By group id: when something in it changed last; 0, or missing, while it never had anything."""
        return self._state.services.group_versions

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """Those under way."""
        return self._state.deployments

    @property
    def splits(self) -> Mapping[str, Split]:
        """Named services, by name."""
        return self._state.splits

    def serving(self, app_id: str) -> Sequence[Task]:
        """The tasks of an app that requests may go to."""
        return serving(self._state, app_id)

    def past(self, app_id: str) -> Sequence[tuple[float, App]]:
        """Every version of an app, oldest first."""
        return [(found.version, found.app) for found in self._state.app_versions.get(app_id, ())]

    @property
    def roots(self) -> Sequence[RootVersion]:
        """The tree of groups as it was, oldest first."""
        return self._state.roots

    def instances_of(self, app_id: str) -> Sequence[Job]:
        """Those that have not ended."""
        return [self._state.jobs[job_id] for job_id in self._state.instances.get(app_id, ())]

    def last_failures(self, app_ids: Collection[str]) -> Mapping[str, Job]:
        """By app: the latest of its instances that ended by itself, and badly, or because it was not healthy. Apps
        without one are left out."""
        found: dict[str, Job] = {}
        wanted = set(app_ids)
        for job_id in reversed(self._state.ended):
            job = self._state.jobs[job_id]
            if job.spec.app in wanted and self._failed(job):
                wanted.remove(job.spec.app)
                found[job.spec.app] = job
                if not wanted:
                    break
        return found

    def _failed(self, job: Job) -> bool:
        task = self._state.tasks.get(job.task_id) if job.task_id else None
        return job.state is JobState.FAILED or (task is not None and bool(task.unhealthy))

    def ends_of(self, app_id: str) -> Ends | None:
        """How the instances of an app ended by themselves of late; None: none did."""
        return ends_of(self._state, app_id, self._now)

    @property
    def launch_delays(self) -> Mapping[str, LaunchDelay]:
        """By app: those in force, of apps that want more instances than they have."""
        return launch_delays(self._state, self._now)

    def check_results(self, task_id: TaskId) -> Sequence[CheckHealth]:
        """Of each check that the scheduler makes of a task, in its app's order; empty: there is no result yet."""
        return self._state.check_results.get(task_id, ())

    def readiness_of(self, task_id: TaskId) -> Readiness | None:
        """What its readiness check found last; None: it was not made since the scheduler started."""
        return self._state.readiness.get(task_id)

    def round_of(self, job: Job) -> Sequence[Task]:
        """The tasks of a job's latest launch, by rank."""
        return self._state.round_of(job)

    def tasks_of(self, job_id: JobId) -> Sequence[Task]:
        """Every launch of a job, oldest first."""
        return self._state.tasks_of(job_id)

    def holder(self, gpu_id: GpuId) -> Task | None:
        """The task that holds a GPU."""
        return self._state.holder(gpu_id)

    def gpus(self) -> Sequence[Standing]:
        """Every GPU once, with what operators say of it; unknown while its node says nothing."""
        return [self._standing(node, gpu) for node, gpu in self._state.placed().values()]

    def _standing(self, node: Node, gpu: Gpu) -> Standing:
        now, silent = standing(self._state, node, gpu), self._unusable(node)
        if not silent or now.health is Health.DRAINED:
            return now
        since = node.lost_at or node.reported_at or 0.0
        return replace(now, health=Health.UNKNOWN, reason=silent, since=since)

    def drain_of(self, hostname: str) -> Drain | None:
        """The drain of a node."""
        return self._state.drain_of(hostname)

    @property
    def drains(self) -> Collection[Drain]:
        """Every drain, also of what is away."""
        return self._state.drains.values()

    @property
    def unused_offers(self) -> Collection[Offer]:
        """The latest of each agent of which nothing was used."""
        return self._state.unused.values()

    def explain(self, job_id: JobId, *, past_offers: bool = False) -> Why:
        """Why the job waits; with `past_offers`, of an agent that offers nothing now by what it offered last.

        Raises:
            NotFound: There is no such job.
        """
        job = self._state.jobs.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
        queue, kept = QueueView(), dict[AgentId, list[Reservation]]()
        if job.state is JobState.PENDING:
            queue, kept = self._queue_view(job)
        offers: dict[AgentId, list[Offer]] = {}
        for offer in self._state.offers.values():
            offers.setdefault(offer.agent_id, []).append(offer)
        for offer in self._state.unused.values() if past_offers else ():
            offers.setdefault(offer.agent_id, [offer])
        neighbours, gpu_nodes = Neighbours(self._state), Placing(self._state, self._settings).key(job)
        nodes = [
            replace(
                self._node_view(node, offers.get(node.id, ())),
                kept=tuple(kept.get(node.id, ())),
                barred=neighbours.barred(job, node),
                ruled_out=neighbours.ruled_out(job.spec, node)
                or (OFF_GPUS if gpu_nodes is GpuNodes.NEVER and node.gpus else ""),
            )
            for node in self._state.nodes.values()
        ]
        bound = job.spec.tasks > 1 and neighbours.key(job) is not None
        apart = partial(self._apart, job, neighbours) if bound else None
        ask = ask_of(job, self._settings)
        found = explain(job, ask, nodes, queue=queue, now=self._now, apart=apart)
        words = self._deployment_waits(job)
        return replace(found, summary=f"{found.summary}; its deployment {words}") if words else found

    def _deployment_waits(self, job: Job) -> str:
        """What the deployment that started an app's instance waits for; "": there is none, or it does not wait."""
        deployments = self._state.deployments.values() if job.app_version is not None else ()
        found = (each.waiting.get(job.spec.app or "", "") for each in deployments)
        return next(filter(None, found), "") if job.state is JobState.PENDING else ""

    def _apart(self, job: Job, neighbours: Neighbours, room: Mapping[AgentId, int]) -> dict[AgentId, int]:
        """How many tasks of a gang each node can take beside the others: one a node in turn, until none is left."""
        taken, missing = dict.fromkeys(room, 0), job.spec.tasks
        largest = sorted(room, key=lambda agent_id: (-room[agent_id], self._state.nodes[agent_id].hostname))
        before = missing + 1
        while 0 < missing < before:
            before = missing
            for agent_id in largest:
                open_here = missing and taken[agent_id] < room[agent_id]
                if open_here and not neighbours.barred(job, self._state.nodes[agent_id]):
                    neighbours.tried(job, agent_id)
                    taken[agent_id] += 1
                    missing -= 1
        return taken

    def _queue_view(self, job: Job) -> tuple[QueueView, dict[AgentId, list[Reservation]]]:
        outlook, limit = self._outlook(), self._settings.queue_limits.get(job.spec.queue)
        outlook.before(job.id)
        view = QueueView(
            position=position_of(job.id, outlook.jobs),
            limit=outlook.limit_words(job),
            never=_beyond(job, limit),
            estimate=outlook.estimate(job),
            ending=tuple(self._ending_for(job)),
        )
        return view, outlook.kept_from(job)

    def _ending_for(self, job: Job) -> list[str]:
        live = (self._state.tasks[task_id] for task_id in self._state.live)
        return sorted({str(task.job_id) for task in live if task.preempted_for == job.id})

    def _outlook(self) -> Outlook:
        return Outlook(self._state, self._settings, self._now)

    def waiting(self, most: int) -> Sequence[Waiting]:
        """The first `most` pending jobs, in the order in which they are tried."""
        return self._outlook().waiting(most)

    def queues(self) -> Sequence[QueueUse]:
        """Every queue that has a limit or a pending job."""
        return self._outlook().queues()

    def defrag(self, wanted: Job | JobSpec) -> Problem:
        """What a plan that makes room needs, for a job or for a request that nobody has sent."""
        if isinstance(wanted, JobSpec):
            wanted = Job(JobId("plan"), wanted, self._now, self._state.next_sequence)
        return problem_of(self._state, self._settings, self._now, wanted)

    def _node_view(self, node: Node, offers: Sequence[Offer]) -> NodeView:
        holders, gpus = {}, []
        for gpu in node.gpus:
            now = standing(self._state, node, gpu)
            stands = now.health, now.reason, now.since
            same = stands == (gpu.health, gpu.reason, gpu.since)
            gpus.append(gpu if same else replace(gpu, health=now.health, reason=now.reason, since=now.since))
            task = self._state.holder(gpu.id)
            if task is not None:
                holders[gpu.id] = str(task.job_id)
            elif self._state.contested.get(gpu.id, 0.0) > self._now:
                holders[gpu.id] = "others: a claim of it was refused"
        resources = tuple(scalar for offer in offers for scalar in offer.resources)
        return NodeView(
            agent_id=node.id,
            hostname=node.hostname,
            gpus=tuple(gpus),
            driver=node.driver_version,
            holders=holders,
            lost=self._lost(node),
            silent=self._silent(node),
            drained=self._drained(node),
            cpus=total(resources, "cpus") if offers else None,
            mem_mib=total(resources, "mem") if offers else None,
            disk_mib=total(resources, "disk") if offers else None,
            gpus_offered=int(total(resources, "gpus")) if offers else None,
            ports=tuple(found for offer in offers for found in offer.ports) if offers else None,
        )

    def _drained(self, node: Node) -> str:
        drain = self._state.drain_of(node.hostname)
        return f"is {drain.words}" if drain else ""

    def _unusable(self, node: Node) -> str:
        return self._lost(node) or self._silent(node)

    def _lost(self, node: Node) -> str:
        if node.lost_at is None:
            return ""
        return f"the master lost this agent {self._now - node.lost_at:.0f} s ago"

    def _silent(self, node: Node) -> str:
        if node.reported_at is None and not node.monitor_launches:
            return ""  # it has never offered a GPU, so there is nothing to monitor
        if node.reported_at is None:
            return "its node monitor has not reported its GPUs yet"
        age_s = self._now - node.reported_at
        if age_s > self._settings.report_stale_s:
            return f"its node monitor has been silent for {age_s:.0f} s"
        return ""
