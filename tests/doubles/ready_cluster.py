"""A driver with a simulated cluster in which launches run at once and killed tasks end at once."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, OfferId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, Work
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.policy.apps.ports import offers, without
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.labels import monitor_labels

PORTS: Final = range(31000, 33000)  # of each agent
CPUS: Final = 1e6  # of each agent
MEM_MIB: Final = 1e9


@dataclass(frozen=True, slots=True)
class ReadyAgent:
    """An agent of a `ReadyCluster`, as its offers and its monitor show it.

    Args:
        hostname: Name of its host.
        gpus: Cards of the agent.
        cpus: Processors beside its cards.
        mem_mib: Memory in MiB.
        attributes: Attributes of its offers.
        zone: Zone of its fault domain, or empty if it has no domain.
    """

    hostname: str
    gpus: tuple[Gpu, ...] = ()
    cpus: float = CPUS
    mem_mib: float = MEM_MIB
    attributes: Mapping[str, str] = field(default_factory=dict)
    zone: str = ""


@dataclass(slots=True)
class _Room:
    """Free amounts, in thousandths, and free ports of an offer or of an agent's rest."""

    amounts: "Counter[str]" = field(default_factory=Counter)
    ports: list[PortRange] = field(default_factory=list)

    def add(self, amounts: Mapping[str, int], ports: Iterable[PortRange]) -> None:
        """Add freed amounts and ports."""
        self.amounts.update(amounts)
        joined: list[PortRange] = []
        for span in sorted((*self.ports, *ports), key=lambda each: each.begin):
            if joined and joined[-1].end + 1 == span.begin:
                span = PortRange(joined.pop().begin, span.end)
            joined.append(span)
        self.ports = joined

    def take(self, amounts: Mapping[str, int], ports: Collection[int]) -> None:
        """Remove the amounts and ports of a task."""
        assert all(offers(self.ports, port) for port in ports), "a port was not offered"
        self.amounts.subtract(amounts)
        self.ports = list(without([PortRange(port, port) for port in sorted(ports)], self.ports))


@dataclass(slots=True)
class _Agent:
    id: AgentId
    url: str
    spec: ReadyAgent
    gpus: list[Gpu]  # as its monitor sees them now
    room: _Room  # neither in a task nor in an offer
    monitor: TaskId | None = None
    said: bytes = b""  # its monitor's last report
    unheard: bool = False  # whether that report is not acknowledged yet


class ReadyCluster:
    """A `Driver` whose events go into the scheduler's queue; only `report` may be called from any thread."""

    def __init__(
        self,
        agents: int | Sequence[ReadyAgent],
        put: Callable[[ev.Event], None],
        now: Callable[[], float],
        gpus: int = 0,
        *,
        cpus: float = CPUS,
        mem_mib: float = MEM_MIB,
    ) -> None:
        """Create agents; `start` offers them.

        Args:
            agents: Agents, or their number if they are alike.
            put: Takes events to the scheduler.
            now: Clock of the scheduler.
            gpus: Number of cards of each of agents that are alike.
            cpus: Processors of each of these.
            mem_mib: Memory in MiB of each of these.
        """
        self._put, self._now, self._serial = put, now, count(1)
        if isinstance(agents, int):
            agents = [ReadyAgent(f"a{n}.example", _cards(n, gpus), cpus, mem_mib) for n in range(agents)]
        self._agents = [_agent(number, spec) for number, spec in enumerate(agents)]
        self._by_id = {agent.id: agent for agent in self._agents}
        self._bare = dict.fromkeys(self._by_id)  # agents with resources that are not offered
        self._of_offer: dict[OfferId, tuple[_Agent, _Room]] = {}
        self._tasks: dict[str, tuple[_Agent, list[int], Counter[str]]] = {}  # with its ports and amounts
        self.launched = 0

    def start(self) -> None:
        """Register the framework and offer all agents."""
        self._put(ev.Registered("fw", "http://127.0.0.1:5050"))
        self._offer()

    def stop(self, *, teardown: bool) -> None:
        """Do nothing: no process runs."""

    def tasks(self) -> Sequence[Listed]:
        """Return no tasks: the scheduler knows them all."""
        return []

    def roles(self) -> Sequence[Role]:
        """Return no roles: none has a limit."""
        return []

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Run tasks on offers and offer the rest again; drop tasks of unknown offers. Reservations are ignored."""
        if not all(each in self._of_offer for each in offer_ids):
            for info in task_infos:
                self._drop(info)
            return
        agent = self._take(offer_ids)
        for info in task_infos:
            id, ports, amounts = TaskId(info["task_id"]["value"]), list(_ports(info)), _amounts(info)
            agent.room.take(amounts, ports)
            self._tasks[id] = agent, ports, amounts
            self._say(id, agent, "TASK_STARTING")
            if _is_monitor(info):
                agent.monitor, agent.said, agent.unheard = id, self._inventory(agent), True
            self._say(id, agent, "TASK_RUNNING", agent.said if id == agent.monitor else b"")
        self.launched += len(task_infos)
        self._offer()

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        """Take offers back until the scheduler revives."""
        self._take(offer_ids)

    def _take(self, offer_ids: Sequence[str]) -> _Agent:
        offered = [self._of_offer.pop(OfferId(each)) for each in offer_ids]
        for agent, room in offered:
            agent.room.add(room.amounts, room.ports)
            self._bare[agent.id] = None
        return offered[0][0]

    def _drop(self, info: Mapping[str, Any]) -> None:
        id, agent_id = TaskId(info["task_id"]["value"]), AgentId(info["agent_id"]["value"])
        self._put(ev.StatusArrived(Status(id, "TASK_DROPPED", agent_id, "REASON_INVALID_OFFERS")))

    def _offer(self) -> None:
        bare, self._bare = self._bare, {}
        self._put(ev.OffersArrived(tuple([self._offer_of(self._by_id[agent_id]) for agent_id in bare])))

    def _offer_of(self, agent: _Agent) -> Offer:
        id, spec, room = OfferId(f"o{next(self._serial)}"), agent.spec, agent.room
        self._of_offer[id], agent.room = (agent, room), _Room()
        scalars = tuple([Scalar(name, amount / 1000) for name, amount in room.amounts.items() if amount > 0])
        return Offer(
            id, agent.id, spec.hostname, agent.url, scalars, spec.attributes, self._now(),
            region="local" if spec.zone else None, zone=spec.zone or None, ports=tuple(room.ports),
        )  # fmt: skip

    def _say(self, id: str, agent: _Agent, state: str, data: bytes = b"", message: str = "") -> None:
        status = Status(TaskId(id), state, agent.id, message=message, uuid=uuid.uuid4().hex, data=data)
        self._put(ev.StatusArrived(status))

    def report(self, number: int, *, uses: bool = False) -> bool:
        """Send a report of an agent's monitor, on any thread.

        Returns False if the agent has no monitor, or if the scheduler has not acknowledged the last report.

        Args:
            number: Number of the agent, from 0.
            uses: Whether the report has the use of cards, different each time; else it equals the last report.
        """
        agent = self._agents[number]
        if agent.monitor is None or agent.unheard:
            return False
        if uses:
            agent.said = self._inventory(agent, self._now())
        agent.unheard = True
        self._say(agent.monitor, agent, "TASK_RUNNING", agent.said)
        return True

    def _inventory(self, agent: _Agent, used_at: float | None = None) -> bytes:
        uses = [] if used_at is None else [_use(gpu.id, used_at) for gpu in agent.gpus]
        inventory = Inventory(tuple(agent.gpus), "simulated", "535", "12.2", gpu_uses=tuple(uses))
        return report.encode(inventory)

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        """Kill a task, which ends at once."""
        self.end(task_id, "TASK_KILLED")

    def end(self, task_id: str, state: str = "TASK_FINISHED", message: str = "") -> None:
        """Let a task end, and offer its resources; does nothing if it has ended.

        Args:
            task_id: Id of the task.
            state: State that Mesos reports.
            message: Message of its executor.
        """
        if task_id in self._tasks:
            agent, ports, amounts = self._tasks.pop(task_id)
            if task_id == agent.monitor:
                agent.monitor, agent.unheard = None, False
            self._say(task_id, agent, state, message=message)
            agent.room.add(amounts, [PortRange(port, port) for port in ports])
            self._bare[agent.id] = None
            self._offer()

    def revive(self, roles: Sequence[str] = ()) -> None:
        """Offer all free resources."""
        self._offer()

    def resubscribe(self) -> None:
        """Do nothing: a subscription never breaks here."""

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        """Allow the next report of a monitor; acknowledgements of other tasks are ignored."""
        agent = self._by_id[AgentId(agent_id)]
        if task_id == agent.monitor:
            agent.unheard = False

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        """Report the state of tasks: running or gone."""
        for task_id, agent_id in tasks or [(id, agent.id) for id, (agent, _, _) in self._tasks.items()]:
            state = "TASK_RUNNING" if task_id in self._tasks else "TASK_GONE"
            agent = None if agent_id is None else AgentId(agent_id)
            self._put(ev.StatusArrived(Status(TaskId(task_id), state, agent, "REASON_RECONCILIATION")))

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """Do nothing: no executor listens."""

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        """Do nothing: there are no executors."""

    def suppress(self, roles: Sequence[str] = ()) -> None:
        """Do nothing: offers come only after a call."""


def _ports(info: Mapping[str, Any]) -> Iterator[int]:
    for resource in info["resources"]:
        if resource["name"] == "ports":
            for each in resource["ranges"]["range"]:
                yield from range(each["begin"], each["end"] + 1)


def _amounts(info: Mapping[str, Any]) -> "Counter[str]":
    """Return the amounts of a task and its executor in thousandths."""
    amounts: Counter[str] = Counter()
    for each in (*info["resources"], *info.get("executor", {}).get("resources", ())):
        if "scalar" in each:
            amounts[each["name"]] += round(each["scalar"]["value"] * 1000)
    return amounts


def _agent(number: int, spec: ReadyAgent) -> _Agent:
    amounts = {"cpus": spec.cpus, "mem": spec.mem_mib, "gpus": len(spec.gpus)}
    room = _Room(
        Counter({name: round(amount * 1000) for name, amount in amounts.items()}),
        [PortRange(PORTS.start, PORTS.stop - 1)],
    )
    return _Agent(AgentId(f"a{number}"), _url(number), spec, list(spec.gpus), room)


def _cards(number: int, count: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(GpuId(f"GPU-a{number}-{n}"), "A100", 81920, n, f"0000:{n:02x}:00.0", health=Health.OK, index=n)
        for n in range(count)
    )


def _url(number: int) -> str:
    """Return an address of this host for each agent, where no process listens."""
    return f"http://127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:9"


def _use(gpu_id: GpuId, at: float) -> GpuUse:
    """Return the use of a card that is busy half of the time."""
    seen_ms = round(at * 1000) % 10**9
    meters = Meters(power_mw=200_000 + seen_ms % 1000, memory_used_mib=seen_ms % 81_920)
    return GpuUse(gpu_id, at, meters, Work(1.0, seen_ms, seen_ms // 2), 1)


def _is_monitor(info: Mapping[str, Any]) -> bool:
    labels = {each["key"]: each["value"] for each in info.get("labels", {}).get("labels", ())}
    return monitor_labels().items() <= labels.items()
