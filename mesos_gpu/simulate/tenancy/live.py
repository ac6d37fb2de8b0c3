"""Simulation of tenants with the real engine and its queues; agents, offers and executors are in memory.

No message is lost or delayed, and nothing fails. Jobs report their checkpoints. A job ends at once at SIGTERM.
"""

import heapq
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, QueueDocument, QueueSpec, Shape
from mesos_gpu.simulate.tenancy.loop import tasks_of
from mesos_gpu.simulate.tenancy.record import Record, Span, Stopped
from mesos_gpu.simulate.tenancy.scenario import Costs, Scenario
from mesos_gpu.simulate.tenancy.trace import TenantJob
from mesos_gpu.wire.mesos import assignment, report

NAME: Final = "mesos-gpu"
START: Final = 1_000_000.0  # seconds since the epoch
_MODEL: Final = "GPU"
_MEMORY_MIB: Final = 16384
_ROUNDING_S: Final = 1.0  # rounding errors of sums of times: a question asked too early is asked again
_NEVER: Final = 1e15  # interval of measures against faults, which do not occur here
_PORTS: Final = (PortRange(31000, 31999),)
_FINISHED: Final = assignment.encode(Outcome(exit_status=0))
_KILLED: Final = assignment.encode(Outcome(signal=15))


def settings_of(costs: Costs) -> Settings:
    """Return default settings without repeated messages and limits on late reports, as no message is lost here."""
    return Settings.of(
        "executor",
        "monitor",
        report_stale_s=_NEVER,
        offer_hold_s=_NEVER,
        idle_linger_s=_NEVER,
        sweep_interval_s=_NEVER,
        launch_doubt_s=_NEVER,
        reconcile_interval_s=_NEVER,
        kill_resend_s=_NEVER,
        start_resend_s=_NEVER,
        notice_resend_s=_NEVER,
        restart_s=costs.restart_s,
        keep_ended_jobs=0,
    )


def queues_of(tenants: Iterable[str]) -> dict[str, str]:
    """Return the path of each tenant's queue: its name, in characters that are allowed for queues."""
    paths: dict[str, str] = {}
    for tenant in sorted(tenants):
        plain = re.sub(r"[^a-z0-9.-]+", "-", tenant.lower()).strip(".-")[:48] or "tenant"
        paths[tenant] = f"{plain}-{len(paths)}" if plain in paths.values() else plain
    return paths


def document_of(scenario: Scenario) -> QueueDocument:
    """Return a document with a queue for each tenant that is guaranteed its whole nodes."""
    per_node, paths = scenario.cluster.gpus_per_node, queues_of(scenario.guarantees)
    queues = {}
    for tenant, nodes in scenario.guarantees.items():
        owed = Guarantee(nodes * per_node * 1000, (Shape(nodes, per_node),))
        queues[paths[tenant]] = QueueSpec(
            guarantee_gpus={DEFAULT_POOL: owed}, notice_s=scenario.costs.notice_s
        )
    overbook = sum(scenario.guarantees.values()) > scenario.cluster.nodes
    return QueueDocument(queues=queues, overbook=overbook)


@dataclass(slots=True)
class _Work:
    """A simulated job with its progress. Times are seconds on the engine's clock."""

    job: TenantJob
    done_s: float = 0.0  # work that a checkpoint has kept
    began_s: float | None = None  # start of its present run; None if it does not run
    owed_s: float = 0.0  # cost of a restart, before work goes on
    tasks: dict[TaskId, AgentId] = field(default_factory=dict)  # tasks that hold GPUs
    run: int = 0  # number of its latest run, from 1
    told_at: float = 0.0  # latest checkpoint that it reported
    tells_at: float = 0.0  # next report of a checkpoint
    # Time of the notice to end, and the job that gets its GPUs.
    told: tuple[float, JobId | None] | None = None
    spans: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class _Agent:
    id: AgentId
    gpus: tuple[Gpu, ...]
    free: dict[str, float]  # resources neither used nor offered


class Engine:
    """The real scheduler engine with a cluster in memory, for one scenario.

    Args:
        scenario: Jobs, nodes and costs.
        document: Tree of queues.
        paths: Path of each tenant's queue.
    """

    def __init__(self, scenario: Scenario, document: QueueDocument, paths: Mapping[str, str]) -> None:
        self._scenario, self._costs, self._paths = scenario, scenario.costs, paths
        self._settings = settings_of(scenario.costs)
        self.now = START
        self.state = State(started_at=self.now)
        self._inbox: deque[ev.Event] = deque()
        self._agents = {agent.id: agent for agent in _agents(scenario)}
        self._offers: dict[OfferId, tuple[_Agent, dict[str, float]]] = {}
        self._tasks: dict[TaskId, tuple[_Agent, dict[str, float]]] = {}
        self._work: dict[JobId, _Work] = {}
        self._running: dict[JobId, _Work] = {}
        self._events: list[tuple[float, int, str, JobId | None, int]] = []
        self._serial = 0
        self._wakes_at = 0.0
        self._ended: dict[str, float] = {}
        self._stopped: list[Stopped] = []
        self._inbox.append(ev.Registered("fw-1", "http://master:5050"))
        self._inbox.append(ev.QueuesChanged(document, 0))
        self._flush()
        for agent in self._agents.values():
            self._offer(agent)
        self._flush()

    def run(self) -> Record:
        """Run all jobs until they end."""
        for number, job in enumerate(self._scenario.jobs):
            job_id = JobId(f"j{number}")
            self._work[job_id] = _Work(job)
            self._push(START + job.submitted_s, "comes", job_id)
        while self._events and len(self._ended) < len(self._work):
            self.now = self._events[0][0]
            is_news = False
            while self._events and self._events[0][0] <= self.now:
                _, _, what, about, run = heapq.heappop(self._events)
                is_news |= self._happen(what, about, run)
            if is_news:
                self._flush()
        spans = {work.job.job_id: work.spans for work in self._work.values()}
        return Record(NAME, self._ended, spans, self._stopped)

    # --- time

    def _push(self, at: float, what: str, job_id: JobId | None = None, run: int = 0) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, what, job_id, run))

    def _happen(self, what: str, job_id: JobId | None, run: int) -> bool:
        """Handle an event of the clock; return whether the engine must decide again."""
        if job_id is None:
            return True
        work = self._work[job_id]
        if what == "comes":
            self._inbox.append(ev.JobSubmitted(job_id, self._spec(work.job), work.job.user))
        elif work.run == run and work.began_s is not None:
            self._end(job_id, work)
        else:
            return False
        return True

    def _spec(self, job: TenantJob) -> JobSpec:
        tasks, size = tasks_of(job.gpus, self._scenario.cluster.gpus_per_node)
        return JobSpec(
            name="job", command="true", cpus=0.1, mem_mib=32, gpus=size, tasks=tasks, queue=self._paths[job.tenant],
            preemptible=job.preemptible, timeout_s=job.timeout_s, max_attempts=1,
        )  # fmt: skip

    # --- the engine

    def _flush(self) -> None:
        """Step the engine in batches, as the daemon does, until no event is left."""
        while True:
            self._tell_checkpoints()
            events = [*self._inbox, ev.Tick(), ev.Match()]
            self._inbox.clear()
            for event in events:
                for effect in step(self.state, event, self.now, self._settings):
                    self._do(effect)
            if not self._inbox and not self.state.match.unmatched:
                break
        moment = self.state.match.next_moment
        if self.now < moment < _NEVER and not self.now < self._wakes_at <= moment:
            self._wakes_at = moment
            self._push(moment, "wakes")

    def _tell_checkpoints(self) -> None:
        """Report the latest checkpoint of each running job, later than it was made but before the engine decides."""
        every = self._costs.checkpoint_s
        if every is None:
            return
        for job_id, work in self._running.items():
            if self.now < work.tells_at:
                continue
            assert work.began_s is not None
            ran_s = max(0.0, self.now - work.began_s - work.owed_s)
            kept_s = self._costs.kept_s(work.done_s, ran_s)
            work.tells_at = self.now + every - (work.done_s + ran_s) % every - _ROUNDING_S
            at = work.began_s + work.owed_s + kept_s - work.done_s
            if kept_s > work.done_s and at > work.told_at:
                work.told_at = at
                step(self.state, ev.CheckpointTold(job_id), at, self._settings)

    def _do(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Launch():
                self._accept(effect)
            case fx.Decline(offer_ids):
                for offer_id in offer_ids:
                    self._take_back(offer_id)
            case fx.Start(agent_id, _, task_id):
                self._runs(task_id, agent_id)
            case fx.Kill(task_id):
                self._kill(task_id)
            case fx.GiveNotice(_, _, task_id, notice, left_s):
                if notice.stands:
                    self._told(task_id)
                    self._push(self.now + left_s, "wakes")

    # --- offers and launches

    def _offer(self, agent: _Agent) -> None:
        if agent.free["cpus"] < 0.01:
            return
        self._serial += 1
        offer_id = OfferId(f"o{self._serial}")
        amounts, agent.free = agent.free, dict.fromkeys(agent.free, 0.0)
        self._offers[offer_id] = agent, amounts
        scalars = tuple(Scalar(name, amount, '{"role":"*"}') for name, amount in amounts.items() if amount)
        host = f"{agent.id}.example"
        made = Offer(offer_id, agent.id, host, f"http://{host}:5051", scalars, {}, self.now, ports=_PORTS)
        self._inbox.append(ev.OffersArrived((made,)))

    def _take_back(self, offer_id: OfferId) -> _Agent:
        agent, amounts = self._offers.pop(offer_id)
        _add(agent.free, amounts)
        return agent

    def _accept(self, launch: fx.Launch) -> None:
        agents = [self._take_back(offer_id) for offer_id in launch.offer_ids]
        for item in launch.tasks:
            taken = dict.fromkeys(agents[0].free, 0.0)
            for scalar in (*item.resources, *item.executor_resources):
                taken[scalar.name] += scalar.amount
            _add(agents[0].free, taken, -1)
            self._tasks[item.task.id] = agents[0], taken
            self._begin(item, agents[0])
        self._offer(agents[0])

    def _begin(self, item: fx.LaunchTask, agent: _Agent) -> None:
        job_id = item.task.job_id
        if job_id is None:
            data = report.encode(Inventory(agent.gpus, "simulated", "550.54.14"))
            self._say(item.task.id, agent.id, "TASK_RUNNING", data)
            return
        self._work[job_id].tasks[item.task.id] = agent.id
        if item.hosts:
            self._say(item.task.id, agent.id, "TASK_STARTING")
        else:
            self._runs(item.task.id, agent.id)

    def _runs(self, task_id: TaskId, agent_id: AgentId) -> None:
        job_id = self.state.work.tasks[task_id].job_id
        assert job_id is not None
        work = self._work[job_id]
        if task_id not in work.tasks:
            return
        self._say(task_id, agent_id, "TASK_RUNNING")
        if work.began_s is None:
            work.run += 1
            work.began_s, work.told, work.tells_at = self.now, None, 0.0
            self._running[job_id] = work
            work.owed_s = self._costs.restart_s if work.spans else 0.0
            ends_at = self.now + work.owed_s + work.job.lasts_s - work.done_s
            self._push(ends_at, "ends", job_id, work.run)

    def _say(self, task_id: TaskId, agent_id: AgentId, state: str, data: bytes = b"") -> None:
        self._serial += 1
        status = Status(task_id, state, agent_id, uuid=f"u{self._serial}", data=data, at=self.now)
        self._inbox.append(ev.StatusArrived(status))

    # --- ends

    def _end(self, job_id: JobId, work: _Work) -> None:
        self._ended[work.job.job_id] = self.now - START
        tasks = tuple(work.tasks)
        work.tasks.clear()
        self._leave(job_id, work)
        for task_id in tasks:
            self._free(task_id, "TASK_FINISHED", _FINISHED)

    def _kill(self, task_id: TaskId) -> None:
        """End a task, as at SIGTERM; the engine kills each task of a gang on its own."""
        task = self.state.work.tasks.get(task_id)
        if task_id not in self._tasks or task is None or task.job_id is None:
            return
        work = self._work[task.job_id]
        self._told(task_id)
        if work.began_s is not None:
            self._lose(task.job_id, work)
        work.tasks.pop(task_id, None)
        self._free(task_id, "TASK_KILLED", _KILLED)

    def _told(self, task_id: TaskId) -> None:
        task = self.state.work.tasks[task_id]
        assert task.job_id is not None
        work = self._work[task.job_id]
        if work.told is None:
            work.told = self.now, task.preempted_for

    def _lose(self, job_id: JobId, work: _Work) -> None:
        """Record a stop: the job loses the work since its last checkpoint."""
        assert work.began_s is not None
        assert work.told is not None
        ran_s = max(0.0, self.now - work.began_s - work.owed_s)
        kept_s = self._costs.kept_s(work.done_s, ran_s)
        lost_s = work.done_s + ran_s - kept_s + self._costs.restart_s
        at, taker = work.told
        name = self._work[taker].job.job_id if taker in self._work else None
        stop = Stopped(work.job.job_id, at - START, name, lost_s, lost_s * work.job.gpus)
        self._stopped.append(stop)
        work.done_s = kept_s
        self._leave(job_id, work)

    def _leave(self, job_id: JobId, work: _Work) -> None:
        assert work.began_s is not None
        work.spans.append(Span(work.began_s - START, self.now - START))
        work.began_s = None
        del self._running[job_id]

    def _free(self, task_id: TaskId, state: str, data: bytes) -> None:
        agent, taken = self._tasks.pop(task_id)
        _add(agent.free, taken)
        self._say(task_id, agent.id, state, data)
        self._offer(agent)


def run_live(scenario: Scenario, document: QueueDocument | None = None) -> Record:
    """Run all jobs until they end, scheduled by the real engine.

    Args:
        scenario: Jobs, nodes, guarantees and costs.
        document: Tree of queues whose leaves have the names of tenants; None for a queue for each tenant with its
            guaranteed nodes.
    """
    if document is None:
        return Engine(scenario, document_of(scenario), queues_of(scenario.guarantees)).run()
    return Engine(scenario, document, {tenant: tenant for tenant in scenario.guarantees}).run()


def _agents(scenario: Scenario) -> Iterable[_Agent]:
    for node in range(scenario.cluster.nodes):
        gpus = tuple(
            Gpu(GpuId(f"g{node}-{n}"), _MODEL, _MEMORY_MIB, n, f"0000:{n:02x}:00.0", n // 4, health=Health.OK)
            for n in range(scenario.cluster.gpus_per_node)
        )
        yield _Agent(AgentId(f"a{node}"), gpus, {"cpus": 64.0, "mem": 65536.0, "gpus": float(len(gpus))})


def _add(to: dict[str, float], amounts: Mapping[str, float], sign: int = 1) -> None:
    for name, amount in amounts.items():
        to[name] = round(to[name] + sign * amount, 6)
