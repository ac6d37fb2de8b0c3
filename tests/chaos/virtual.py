"""Mesos in memory: a master, its agents, their executors and node monitors. Messages are true, but may be late.

It behaves like Mesos 1.11 for a partition-aware framework: an agent repeats the oldest update of a task until that is
acknowledged, and holds later ones back; the master's own updates have no uuid and are sent once; reconciliation sends
the latest state without data of the executor.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Transition
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import assignment, report
from mesos_gpu.wire.mesos.notice import encode_told
from mesos_gpu.wire.mesos.reservations import owner_of, reserved
from mesos_gpu.wire.mesos.resize import encode_answer
from tests.chaos.idling.use import Meters
from tests.chaos.violation import Violation

TERMINAL: Final = frozenset(
    f"TASK_{word}"
    for word in ("FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR")
)
MAX_MAIL: Final = 64  # messages under way; the oldest is lost first
OFFER_TIMEOUT_S: Final = (
    60.0  # the master's --offer_timeout, without which a lost ACCEPT would keep its offer
)
PORTS: Final = (31000, 31001, 31002, 31003, 31004, 31005)  # ports of each agent
FRAMEWORK: Final = "fw-1"  # framework id of the scheduler
_PLAIN: Final = '{"role":"*"}'
_encoded = lru_cache(maxsize=4096)(report.encode)
_outcome = lru_cache(maxsize=4096)(assignment.encode)


no_amounts: Final = {"cpus": 0.0, "mem": 0.0, "gpus": 0.0}.copy  # makes zero amounts of all resources


@dataclass(slots=True, eq=False)
class Keeper:
    """An executor of cover tasks, which exists as long as one of them."""

    info: str  # digest of its ExecutorInfo
    scalars: tuple[Scalar, ...]  # its own resources


@dataclass(slots=True, eq=False)
class Agent:
    """A host with its agent: GPUs, the ledger of claims, resources, and its connection to the master."""

    id: AgentId
    hostname: str
    gpus: tuple[Gpu, ...]
    driver: str
    free: dict[str, float]  # neither used nor offered, by the name of the resource
    cut: bool = False  # whether the master calls it unreachable; its tasks go on
    hidden_until: float = 0.0  # time at which it registers with a new master
    filtered_until: float = 0.0  # end of the filter of a DECLINE
    report_due: float = 0.0
    claims: dict[GpuId, TaskId] = field(default_factory=dict)  # of whole GPUs
    shares: dict[GpuId, dict[TaskId, Share]] = field(default_factory=dict)  # of shared GPUs
    # Amounts that are reserved for our role, neither used nor offered.
    kept: dict[str, float] = field(default_factory=no_amounts)
    keepers: dict[str, Keeper] = field(default_factory=dict)  # by executor id
    others: float = 0.0  # GPUs that another framework has
    ports: list[int] = field(default_factory=lambda: list(PORTS))  # neither used nor offered
    generation: int = 0  # number of new ids after losses of power


@dataclass(slots=True, eq=False)
class Run:
    """A launch in the simulated cluster."""

    item: fx.LaunchTask
    agent: Agent
    stage: str = "TASK_STAGING"
    began_at: float | None = None  # when its command started
    to_be_killed: bool = False
    told_to_start: bool = False  # whether a member of a gang may start
    outbox: list[Status] = field(default_factory=list)  # updates that are not acknowledged, oldest first
    uuids: int = 0
    resized: ResizeAnswer | None = None  # the latest answer of its executor
    deaf: bool = False  # whether it ignores requests to resize

    @property
    def id(self) -> TaskId:
        """Id of the task."""
        return self.item.task.id

    @property
    def job_id(self) -> JobId | None:
        """Job of the launch, or None for a node monitor or a cover task."""
        return self.item.task.job_id

    @property
    def alive(self) -> bool:
        """Whether it holds its GPUs."""
        return self.stage not in TERMINAL

    @property
    def is_monitor(self) -> bool:
        """Whether it is a node monitor."""
        return self.job_id is None and self.item.task.covers is None

    @property
    def lasts(self) -> bool:
        """Whether its command never ends by itself: it is no job, or an instance of an app."""
        return self.job_id is None or "._app" in self.job_id

    @property
    def at_barrier(self) -> bool:
        """Whether it is ready and waits for the other members of its gang."""
        return self.stage == "TASK_STARTING" and bool(self.item.hosts) and not self.told_to_start


@dataclass(slots=True)
class Facts:
    """Facts about a job that the scheduler does not know, and ends of its launches."""

    needs: str | None = None  # the oldest driver that its image runs with
    failed: int = 0  # launches whose command ended badly by itself
    finished: int = 0


class VirtualMesos:
    """A master with all of its agents: calls take effect at once, and events wait in `mail`."""

    def __init__(self, agents: Iterable[Agent], *, role: str = "*", reserves: bool = True) -> None:
        """Begin without tasks and connection; `reserves` tells whether the scheduler may reserve for its role."""
        self.now, self.use = 0.0, Meters()
        self.role, self.reserves = role, reserves
        self.agents = {agent.id: agent for agent in agents}
        self.gone: dict[AgentId, str] = {}  # agents that an operator has marked gone, with their hosts
        self.runs: dict[TaskId, Run] = {}  # launches that are alive or have unacknowledged updates
        self.facts: dict[JobId, Facts] = {}
        self.offers: dict[OfferId, tuple[Agent, dict[str, float]]] = {}
        self.mail: list[ev.Event] = []
        self.connected = self.suppressed = False
        self._serial = 0
        self.offered_at: dict[OfferId, float] = {}
        self.offered_ports: dict[OfferId, list[int]] = {}
        self.offered_kept: dict[OfferId, dict[str, float]] = {}  # reserved amounts of each offer

    # --- connections

    def hears(self, agent: Agent) -> bool:
        """Return whether an agent is registered and reachable."""
        return not agent.cut and self.now >= agent.hidden_until

    def alive(self) -> list[Run]:
        """Return the launches that hold resources, in the order of their launch."""
        return [run for run in self.runs.values() if run.alive]

    def post(self, event: ev.Event) -> None:
        """Send an event to the scheduler if it is connected."""
        if self.connected:
            self.mail.append(event)
            if len(self.mail) > MAX_MAIL:
                del self.mail[0]

    def resend(self, run: Run) -> None:
        """Repeat the oldest unacknowledged update of a launch."""
        if run.outbox and self.hears(run.agent):
            self.post(ev.StatusArrived(run.outbox[0]))

    def disconnect(self) -> None:
        """End the connection: offers and messages under way are void."""
        self.connected, self.suppressed = False, False
        self.mail.clear()
        for offer_id in list(self.offers):
            self.take_back(offer_id)

    # --- offers

    def offer(self, agent: Agent) -> ev.OffersArrived | None:
        """Offer all free resources of an agent, if the scheduler takes offers and there is enough for one."""
        deaf = not self.connected or self.suppressed or not self.hears(agent)
        enough = all(
            agent.free[name] + agent.kept[name] >= least for name, least in (("cpus", 0.01), ("mem", 32))
        )
        if deaf or self.now < agent.filtered_until or not enough:
            return None
        self._serial += 1
        offer_id = OfferId(f"o{self._serial}")
        amounts, agent.free = agent.free, dict.fromkeys(agent.free, 0.0)
        self.offers[offer_id] = (agent, amounts)
        self.offered_at[offer_id] = self.now
        self.offered_ports[offer_id], agent.ports = agent.ports, []
        ports = tuple(PortRange(port, port) for port in self.offered_ports[offer_id])
        self.offered_kept[offer_id], agent.kept = agent.kept, no_amounts()
        plain = [Scalar(name, amount, _PLAIN) for name, amount in amounts.items() if amount]
        kept = [
            reserved(Scalar(name, amount, _PLAIN), self.role, None, FRAMEWORK)
            for name, amount in self.offered_kept[offer_id].items()
            if amount
        ]
        scalars = (*plain, *kept)
        url = "http://agent:5051"
        made = Offer(offer_id, agent.id, agent.hostname, url, scalars, {}, self.now, ports=ports)
        return ev.OffersArrived((made,))

    def take_back(self, offer_id: OfferId) -> None:
        """Remove an offer and free its resources."""
        agent, amounts = self.offers.pop(offer_id)
        del self.offered_at[offer_id]
        agent.ports = sorted([*agent.ports, *self.offered_ports.pop(offer_id)])
        _add(agent.free, amounts)
        _add(agent.kept, self.offered_kept.pop(offer_id))

    def rescind(self, offer_id: OfferId) -> None:
        """Remove an offer and send its rescind."""
        self.take_back(offer_id)
        self.post(ev.OfferRescinded(offer_id))

    def rescind_old(self) -> None:
        """Rescind offers that were not answered in time."""
        for offer_id, at in list(self.offered_at.items()):
            if self.now - at < OFFER_TIMEOUT_S:
                break
            self.rescind(offer_id)

    # --- calls

    def call(self, effect: fx.Effect) -> None:
        """Execute an effect of the engine if it is a call."""
        match effect:
            case fx.Launch():
                self._accept(effect)
            case fx.Acknowledge(_, task_id, uuid):
                self._acknowledge(task_id, uuid)
            case fx.Decline():
                self._decline(effect)
            case fx.Kill(task_id, agent_id):
                self._kill(task_id, agent_id)
            case fx.Reconcile(tasks):
                self._reconcile(tasks)
            case fx.AskReset(agent_id, _, gpu_id, request):
                self._reset(agent_id, gpu_id, request)
            case fx.Start(_, _, task_id):
                self._start(task_id)
            case fx.AskResize(_, _, task_id, resize):
                self._resize(task_id, resize)
            case fx.GiveNotice(_, _, task_id, notice):
                if run := self._listening(task_id):  # executors of an earlier version ignore notices
                    self.emit(run, "TASK_RUNNING", encode_told(notice.number))
            case fx.Suppress() | fx.Revive():
                self._want(isinstance(effect, fx.Revive))

    def _decline(self, decline: fx.Decline) -> None:
        for offer_id in decline.offer_ids:
            if offer_id in self.offers:
                self.offers[offer_id][0].filtered_until = self.now + decline.refuse_s
                self.take_back(offer_id)

    def _want(self, offers: bool) -> None:
        self.suppressed = not offers
        for agent in self.agents.values() if offers else ():
            agent.filtered_until = 0.0

    def _start(self, task_id: TaskId) -> None:
        run = self.runs.get(task_id)
        if run is not None and self.hears(run.agent):
            run.told_to_start = True

    def _accept(self, launch: fx.Launch) -> None:
        valid = all(offer_id in self.offers for offer_id in launch.offer_ids)
        of_offer = next((self.offers[o][0] for o in launch.offer_ids if o in self.offers), None)
        for offer_id in launch.offer_ids:
            if offer_id in self.offers:
                self.take_back(offer_id)
        if valid and of_offer is not None:
            self._operate(launch, of_offer)
        for item in launch.tasks:
            task = item.task
            if not valid:
                self._say(task.id, task.agent_id, "TASK_DROPPED", "REASON_INVALID_OFFERS")
                continue
            agent = self.agents[task.agent_id]
            if not self._admits(agent, item):
                self._say(task.id, task.agent_id, "TASK_ERROR", "REASON_TASK_INVALID")
                continue
            for scalar in (*item.resources, *item.executor_resources):
                _put(agent, scalar, -1)
            for port in item.ports:
                agent.ports.remove(port.begin)
            self.runs[task.id] = Run(item, agent)

    def _operate(self, launch: fx.Launch, agent: Agent) -> None:
        """Execute reservations, which the master drops silently if it does not allow them."""
        if not self.reserves:
            return
        for scalar in launch.unreserve:
            _add(agent.kept, {scalar.name: scalar.amount}, -1)
            _add(agent.free, {scalar.name: scalar.amount})
        for scalar in launch.reserve:
            _add(agent.free, {scalar.name: scalar.amount}, -1)
            _add(agent.kept, {scalar.name: scalar.amount})

    def _admits(self, agent: Agent, item: fx.LaunchTask) -> bool:
        """Return whether the master accepts a task, by reserved amounts and ExecutorInfo."""
        need = no_amounts()
        for scalar in filter(owner_of, (*item.resources, *item.executor_resources)):
            _add(need, {scalar.name: scalar.amount})
        if any(agent.kept[name] + 1e-6 < amount for name, amount in need.items()):
            return False
        task = item.task
        if task.covers is None:
            return True
        keeper = agent.keepers.get(task.executor_id)
        if keeper is None:
            if item.executor_resources:
                agent.keepers[task.executor_id] = Keeper(task.keeper, item.executor_resources)
            return bool(item.executor_resources)
        return keeper.info == task.keeper and not item.executor_resources

    def _of_executor(self, run: Run) -> tuple[Scalar, ...]:
        """Return the resources that an executor frees with a task; a keeper frees them with its last task."""
        task = run.item.task
        if task.covers is None:
            return run.item.executor_resources
        runs = (other for other in self.runs.values() if other.alive and other is not run)
        if any(
            other.agent is run.agent and other.item.task.executor_id == task.executor_id for other in runs
        ):
            return ()
        keeper = run.agent.keepers.pop(task.executor_id, None)
        return keeper.scalars if keeper else ()

    def covers_on(self, agent: Agent) -> list[Run]:
        """Return the cover tasks on an agent."""
        return [run for run in self.alive() if run.agent is agent and run.item.task.covers is not None]

    def other_takes(self, agent: Agent) -> None:
        """Let another framework take all free GPUs of an agent."""
        agent.others, agent.free["gpus"] = agent.others + agent.free["gpus"], 0.0

    def other_leaves(self, agent: Agent) -> None:
        """Let another framework give its GPUs back."""
        agent.free["gpus"], agent.others = agent.free["gpus"] + agent.others, 0.0

    def _acknowledge(self, task_id: TaskId, uuid: str) -> None:
        run = self.runs.get(task_id)
        if run is None or not run.outbox or run.outbox[0].uuid != uuid or not self.hears(run.agent):
            return
        del run.outbox[0]
        if run.outbox:
            self.resend(run)
        elif not run.alive:
            del self.runs[task_id]

    def _kill(self, task_id: TaskId, agent_id: AgentId | None) -> None:
        run = self.runs.get(task_id)
        if run is not None and run.alive and self.hears(run.agent):
            run.to_be_killed = True
        elif agent_id is not None:
            self._answer(task_id, agent_id)

    def _reconcile(self, tasks: Iterable[tuple[TaskId, AgentId]]) -> None:
        asked = tuple(tasks)
        for task_id, agent_id in asked or [(run.id, run.agent.id) for run in self.runs.values()]:
            self._answer(task_id, agent_id)

    def _answer(self, task_id: TaskId, agent_id: AgentId) -> None:
        agent, run = self.agents.get(agent_id), self.runs.get(task_id)
        if agent_id in self.gone:
            self._say(task_id, agent_id, "TASK_GONE_BY_OPERATOR")
        elif agent is None or agent.cut:
            self._say(task_id, agent_id, "TASK_UNREACHABLE")
        elif self.now < agent.hidden_until:
            if (
                int(agent.hidden_until) % 2
            ):  # as a master without a registry; one with a registry keeps silent
                self._say(task_id, agent_id, "TASK_UNKNOWN")
        elif run is None:
            self._say(task_id, agent_id, "TASK_GONE")
        else:
            self._say(task_id, agent_id, run.outbox[0].state if run.outbox else run.stage)

    def _say(
        self, task_id: TaskId, agent_id: AgentId, state: str, reason: str = "REASON_RECONCILIATION"
    ) -> None:
        self.post(ev.StatusArrived(Status(task_id, state, agent_id, reason)))

    def _reset(self, agent_id: AgentId, gpu_id: GpuId, request: str) -> None:
        agent = self.agents.get(agent_id)
        if agent is not None and self.hears(agent):
            self.set_health(agent, gpu_id, Health.OK, f"reset {request}: done")

    # --- executors

    def update(self, run: Run, state: str, outcome: Outcome | None = None, reason: str = "") -> None:
        """Send a status update of an executor; a terminal one frees all resources of the launch."""
        self.emit(run, state, _outcome(outcome) if outcome else b"", reason)
        if state not in TERMINAL:
            return
        facts = self.facts.get(run.job_id) if run.job_id else None
        if facts is not None and state == "TASK_FINISHED":
            facts.finished += 1
        if facts is not None and state == "TASK_FAILED" and outcome is not None and not _excused(outcome):
            facts.failed += 1
        self._release(run)

    def emit(self, run: Run, state: str, data: bytes, reason: str = "") -> None:
        """Queue a status update of a task, and send it if it is the oldest one."""
        run.stage = state
        run.uuids += 1
        uuid = f"{run.id}/{run.uuids}"
        run.outbox.append(Status(run.id, state, run.agent.id, reason, "", "", uuid, data))
        if len(run.outbox) == 1:
            self.resend(run)

    def _release(self, run: Run) -> None:
        for gpu_id in [gpu_id for gpu_id, task_id in run.agent.claims.items() if task_id == run.id]:
            del run.agent.claims[gpu_id]
        shared = [
            gpu_id for gpu_id, shares in run.agent.shares.items() if shares.pop(run.id, None) and not shares
        ]
        for gpu_id in shared:
            del run.agent.shares[gpu_id]
        for scalar in (*run.item.resources, *self._of_executor(run)):
            _put(run.agent, scalar, 1)
        run.agent.ports = sorted([*run.agent.ports, *(port.begin for port in run.item.ports)])

    def start(self, run: Run) -> None:
        """Let an executor check the driver and claim GPUs, and report the start or a failure."""
        task = run.item.task
        facts = self.facts.get(task.job_id) if task.job_id else None
        taken = tuple(gpu_id for gpu_id in task.gpus if not _lets_in(run.agent, gpu_id, task.share))
        if taken:
            self.update(run, "TASK_FAILED", Outcome(infrastructure=True, refused_gpus=taken))
        elif facts is not None and not as_new_as(run.agent.driver, facts.needs):
            self.update(run, "TASK_FAILED", Outcome(min_driver=facts.needs, needs="a newer driver"))
        else:
            for gpu_id in task.gpus:
                if task.share is None:
                    run.agent.claims[gpu_id] = task.id
                else:
                    run.agent.shares.setdefault(gpu_id, {})[task.id] = task.share
            self.update(run, "TASK_STARTING")

    def _resize(self, task_id: TaskId, resize: Resize) -> None:
        """Let an executor resize its task or refuse; it repeats the answer to an old request."""
        if run := self._listening(task_id):
            if run.resized is None or resize.number > run.resized.number:
                run.resized = _resized(run, resize)
            self.emit(run, "TASK_RUNNING", encode_answer(run.resized))

    def _listening(self, task_id: TaskId) -> Run | None:
        run = self.runs.get(task_id)
        if run is None or run.stage != "TASK_RUNNING" or run.to_be_killed or run.deaf:
            return None
        return run if self.hears(run.agent) else None

    # --- agents

    def lose(self, agent: Agent) -> None:
        """Mark an agent unreachable: report its tasks as such, and rescind its offers."""
        for offer_id in [o for o, (other, _) in self.offers.items() if other is agent]:
            self.rescind(offer_id)
        agent.cut = True
        for run in self.runs.values():
            if run.agent is agent:
                self._say(run.id, agent.id, "TASK_UNREACHABLE", "REASON_SLAVE_REMOVED")
        self.post(ev.AgentLost(agent.id))

    def come_back(self, agent: Agent) -> None:
        """Register an agent again, which repeats unacknowledged updates."""
        agent.cut, agent.hidden_until = False, 0.0
        for run in list(self.runs.values()):
            if run.agent is agent:
                self.resend(run)

    def die(self, agent: Agent) -> None:
        """Cut the power of a host: its tasks are gone without an update."""
        self.lose(agent)
        for run in [run for run in self.runs.values() if run.agent is agent]:
            if run.alive:
                run.stage = "TASK_GONE"
                self._release(run)
            del self.runs[run.id]
        self.other_leaves(agent)

    def rename(self, agent: Agent) -> Agent:
        """Start a host again as another agent; an operator marks the old one gone."""
        new = replace(
            agent,
            id=AgentId(f"{agent.hostname.split('.')[0]}.{agent.generation + 1}"),
            generation=agent.generation + 1,
            cut=False,
            claims={},
            shares={},
            keepers={},
            kept=no_amounts(),
            free={name: round(amount + agent.kept[name], 3) for name, amount in agent.free.items()},
            ports=list(agent.ports),
        )
        del self.agents[agent.id]
        self.gone[agent.id] = agent.hostname
        self.agents[new.id] = new
        return new

    def monitor_of(self, agent: Agent) -> Run | None:
        """Return the running node monitor of an agent, or None."""
        monitors = (run for run in self.runs.values() if run.agent is agent and run.is_monitor)
        return next((run for run in monitors if run.stage == "TASK_RUNNING"), None)

    def report(self, agent: Agent, data: bytes | None = None, *, gpus: tuple[Gpu, ...] | None = None) -> None:
        """Send a report of an agent's monitor, if one runs; `data` or `gpus` replace the true content."""
        run = self.monitor_of(agent)
        if run is None or len(run.outbox) > 2:
            return
        agent.report_due = self.now + 10.0
        data = data or _encoded(self._inventory(run, agent.gpus if gpus is None else gpus))
        self.emit(run, "TASK_RUNNING", data)

    def _inventory(self, monitor: Run, gpus: tuple[Gpu, ...]) -> Inventory:
        held = [(run.id, run.item.task.gpus) for run in self.alive() if run.agent is monitor.agent]
        uses = self.use.told(monitor.id, held, self.now)
        return Inventory(gpus, "simulated", monitor.agent.driver, task_uses=uses)

    def set_health(self, agent: Agent, gpu_id: GpuId, health: Health, why: str) -> None:
        """Change the health of a GPU, with its history."""
        changed = []
        for gpu in agent.gpus:
            if gpu.id == gpu_id:
                history = (*gpu.history, Transition(self.now, gpu.health, health, why))[-4:]
                gpu = replace(gpu, health=health, reason=why, since=self.now, history=history)
            changed.append(gpu)
        agent.gpus = tuple(changed)
        agent.report_due = self.now


def _excused(outcome: Outcome) -> bool:
    return outcome.infrastructure or outcome.min_driver is not None


def _lets_in(agent: Agent, gpu_id: GpuId, share: Share | None) -> bool:
    """Return whether the ledger of a host lets a task have a GPU or a share of it."""
    others = list(agent.shares.get(gpu_id, {}).values())
    if gpu_id in agent.claims or share is None:
        return gpu_id not in agent.claims and not others
    gpu = next((gpu for gpu in agent.gpus if gpu.id == gpu_id), None)
    if gpu is None or gpu.sharing is None:
        return False
    every = [*others, share]
    return (
        sum(each.memory_mib for each in every) <= gpu.sharing.memory_mib
        and sum(each.compute_milli for each in every) <= WHOLE
        and len({(each.method, each.domain) for each in every}) == 1
    )


def _resized(run: Run, resize: Resize) -> ResizeAnswer:
    """Return the answer to a resize, and apply it; a task uses half of the memory that it was launched with.

    Raises:
        Violation: The requested share does not fit on the host.
    """
    agent, task = run.agent, run.item.task
    held = agent.shares[task.gpus[0]][run.id]
    wanted = replace(
        held,
        memory_mib=resize.memory_mib,
        memory_max_mib=resize.memory_max_mib,
        compute_milli=resize.compute_milli,
    )
    used_mib = task.share.memory_mib // 2 if task.share else 0
    fixed = resize.number % 5 == 4  # the limit cannot change now
    refused = f"it uses {used_mib} MiB" if used_mib > resize.memory_mib else "not while it runs" * fixed
    for gpu_id in () if refused else task.gpus:
        del agent.shares[gpu_id][run.id]
        fits = _lets_in(agent, gpu_id, wanted)
        agent.shares[gpu_id][run.id] = wanted if fits else held
        if not fits:
            words = f"{run.id} shall have {wanted} of {gpu_id}, and others have {agent.shares[gpu_id]}"
            raise Violation("what a host is asked for fits there", words, run.id)
    now = held if refused else wanted
    return ResizeAnswer(
        resize.number,
        now.memory_mib,
        now.memory_max_mib,
        now.compute_milli,
        refused,
        used_mib if used_mib > resize.memory_mib else None,
        restart=fixed,
    )


def _add(to: dict[str, float], amounts: Mapping[str, float], sign: int = 1) -> None:
    for name, amount in amounts.items():
        to[name] = round(to[name] + sign * amount, 3)


def _put(agent: Agent, scalar: Scalar, sign: int) -> None:
    """Add an amount to the free or reserved resources of an agent, or subtract it."""
    _add(agent.kept if owner_of(scalar) else agent.free, {scalar.name: scalar.amount}, sign)
