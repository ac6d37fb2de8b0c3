"""What others may read of the engine's state."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mesos_gpu.engine.line import ask_of
from mesos_gpu.engine.neighbours import Neighbours, ruled_out
from mesos_gpu.engine.outlook import Outlook
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.standing import standing
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotFound
from mesos_gpu.model.drain import Drain
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.job import Job, JobState
from mesos_gpu.model.node import Node, Standing
from mesos_gpu.model.offer import total
from mesos_gpu.model.queue import QueueUse, Waiting
from mesos_gpu.model.task import Task
from mesos_gpu.model.why import Why
from mesos_gpu.policy.queue import position_of
from mesos_gpu.policy.why import NodeView, QueueView, explain


class StateView:
    """The state at one moment; valid only inside the function that `Daemon.read` runs."""

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        """Wrap; nothing is copied."""
        self._state, self._settings, self._now = state, settings, now

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """Every job that is remembered, oldest first."""
        return self._state.jobs

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Every launch of those jobs, and the monitors that live."""
        return self._state.tasks

    @property
    def nodes(self) -> Mapping[AgentId, Node]:
        """Every agent that ever offered something, until it is lost for a day."""
        return self._state.nodes

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

    def explain(self, job_id: JobId) -> Why:
        """Why the job waits.

        Raises:
            NotFound: There is no such job.
        """
        job = self._state.jobs.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
        queue, kept = QueueView(), dict[AgentId, str]()
        if job.state is JobState.PENDING:
            queue, kept = self._queue_view(job)
        neighbours = Neighbours(self._state)
        nodes = [
            replace(
                self._node_view(node, kept.get(node.id, "")),
                barred=neighbours.barred(job, node),
                ruled_out=ruled_out(job.spec, node),
            )
            for node in self._state.nodes.values()
        ]
        return explain(job, ask_of(job, self._settings), nodes, queue=queue, now=self._now)

    def _queue_view(self, job: Job) -> tuple[QueueView, dict[AgentId, str]]:
        outlook, limit = self._outlook(), self._settings.queue_limits.get(job.spec.queue)
        outlook.before(job.id)
        estimate = outlook.estimate(job)
        view = QueueView(
            position=position_of(job.id, outlook.jobs),
            limit=outlook.limit_words(job),
            never=estimate.basis if limit is not None and job.spec.gpus > limit else "",
            estimate=estimate,
        )
        return view, outlook.kept_from(job)

    def _outlook(self) -> Outlook:
        return Outlook(self._state, self._settings, self._now)

    def waiting(self, most: int) -> Sequence[Waiting]:
        """The first `most` pending jobs, in the order in which they are tried."""
        return self._outlook().waiting(most)

    def queues(self) -> Sequence[QueueUse]:
        """Every queue that has a limit or a pending job."""
        return self._outlook().queues()

    def _node_view(self, node: Node, kept: str) -> NodeView:
        offers = [offer for offer in self._state.offers.values() if offer.agent_id == node.id]
        holders, gpus = {}, []
        for gpu in node.gpus:
            now = standing(self._state, node, gpu)
            gpus.append(replace(gpu, health=now.health, reason=now.reason))
            task = self._state.holder(gpu.id)
            if task is not None:
                holders[gpu.id] = str(task.job_id)
        return NodeView(
            agent_id=node.id,
            hostname=node.hostname,
            gpus=tuple(gpus),
            driver=node.driver_version,
            holders=holders,
            unusable=self._unusable(node),
            drained=self._drained(node),
            kept=kept,
            cpus=sum(total(offer.resources, "cpus") for offer in offers) if offers else None,
            mem_mib=sum(total(offer.resources, "mem") for offer in offers) if offers else None,
        )

    def _drained(self, node: Node) -> str:
        drain = self._state.drain_of(node.hostname)
        return f"is {drain.words}" if drain else ""

    def _unusable(self, node: Node) -> str:
        if node.lost_at is not None:
            return f"the master lost this agent {self._now - node.lost_at:.0f} s ago"
        if node.reported_at is None and not node.monitor_launches:
            return ""  # it has never offered a GPU, so there is nothing to monitor
        if node.reported_at is None:
            return "its node monitor has not reported its GPUs yet"
        age_s = self._now - node.reported_at
        if age_s > self._settings.report_stale_s:
            return f"its node monitor has been silent for {age_s:.0f} s"
        return ""
