"""A driver with a cluster that always has room: launches run at once, and what is killed ends at once."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, GpuId, OfferId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.labels import monitor_labels

PORTS: Final = range(31000, 33000)  # of each agent
_ROOM: Final = (Scalar("cpus", 1e6), Scalar("mem", 1e9))


@dataclass(slots=True)
class _Agent:
    id: AgentId
    offer: OfferId | None = None  # what the scheduler has of it
    used: set[int] = field(default_factory=set)  # ports
    gpus_left: int = 0


class ReadyCluster:
    """`Driver`. Its answers are put into the scheduler's queue. All is on the engine's thread."""

    def __init__(
        self, agents: int, put: Callable[[ev.Event], None], now: Callable[[], float], gpus: int = 0
    ) -> None:
        """`put`: where events go. `now`: the scheduler's clock. `gpus`: of each agent; only of these there may be too
        few."""
        self._put, self._now, self._serial, self._gpus = put, now, count(1), gpus
        self._agents = [_Agent(AgentId(f"a{n}"), gpus_left=gpus) for n in range(agents)]
        self._of_offer: dict[OfferId, _Agent] = {}
        self._tasks: dict[str, tuple[_Agent, list[int], int]] = {}  # with its ports and GPUs
        self.launched = 0

    def start(self) -> None:
        """Subscribed at once."""
        self._put(ev.Registered("fw", "http://127.0.0.1:5050"))
        self._offer()

    def stop(self, *, teardown: bool) -> None:
        """Nothing is left to do."""

    def tasks(self) -> Sequence[Listed]:
        """List nothing: the scheduler knows all tasks, and never asks."""
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
        """All of it runs, if the offers are at hand; what is left is offered anew. Reservations change nothing."""
        if not all(each in self._of_offer for each in offer_ids):
            for info in task_infos:
                self._drop(info)
            return
        agent = self._take(offer_ids)
        for info in task_infos:
            id, ports, gpus = info["task_id"]["value"], list(_ports(info)), _gpus(info)
            agent.used.update(ports)
            agent.gpus_left -= gpus
            self._tasks[id] = agent, ports, gpus
            self._say(id, agent, "TASK_STARTING")
            self._say(id, agent, "TASK_RUNNING", self._inventory(agent) if _is_monitor(info) else b"")
        self.launched += len(task_infos)
        self._offer()

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        """Offered again when the scheduler asks."""
        self._take(offer_ids)

    def _take(self, offer_ids: Sequence[str]) -> _Agent:
        agents = [self._of_offer.pop(OfferId(each)) for each in offer_ids]
        for agent in agents:
            agent.offer = None
        return agents[0]

    def _drop(self, info: Mapping[str, Any]) -> None:
        id, agent_id = TaskId(info["task_id"]["value"]), AgentId(info["agent_id"]["value"])
        self._put(ev.StatusArrived(Status(id, "TASK_DROPPED", agent_id, "REASON_INVALID_OFFERS")))

    def _offer(self) -> None:
        self._put(ev.OffersArrived(tuple(map(self._offer_of, [a for a in self._agents if a.offer is None]))))

    def _offer_of(self, agent: _Agent) -> Offer:
        agent.offer = OfferId(f"o{next(self._serial)}")
        self._of_offer[agent.offer] = agent
        edges = [PORTS.start - 1, *sorted(agent.used), PORTS.stop]
        free = tuple(
            PortRange(before + 1, after - 1) for before, after in pairwise(edges) if after - before > 1
        )
        host = f"{agent.id}.example"
        room = (*_ROOM, Scalar("gpus", agent.gpus_left)) if agent.gpus_left else _ROOM
        return Offer(agent.offer, agent.id, host, "http://127.0.0.1:9", room, {}, self._now(), ports=free)

    def _say(self, id: str, agent: _Agent, state: str, data: bytes = b"") -> None:
        self._put(ev.StatusArrived(Status(TaskId(id), state, agent.id, uuid=uuid.uuid4().hex, data=data)))

    def _inventory(self, agent: _Agent) -> bytes:
        gpus = tuple(
            Gpu(GpuId(f"GPU-{agent.id}-{n}"), "A100", 81920, n, f"0000:{n:02x}:00.0", health=Health.OK)
            for n in range(self._gpus)
        )
        return report.encode(Inventory(gpus, "simulated", "535", "12.2"))

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        """Kill a task, which ends at once."""
        if task_id in self._tasks:
            agent, ports, gpus = self._tasks.pop(task_id)
            agent.used.difference_update(ports)
            agent.gpus_left += gpus
            self._say(task_id, agent, "TASK_KILLED")

    def revive(self) -> None:
        """Offer what is not offered."""
        self._offer()

    def resubscribe(self) -> None:
        """Do nothing: no engine breaks here."""

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        """Good."""

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        """Say how they stand: a task runs, or it is gone."""
        for task_id, agent_id in tasks or [(id, agent.id) for id, (agent, _, _) in self._tasks.items()]:
            state = "TASK_RUNNING" if task_id in self._tasks else "TASK_GONE"
            agent = None if agent_id is None else AgentId(agent_id)
            self._put(ev.StatusArrived(Status(TaskId(task_id), state, agent, "REASON_RECONCILIATION")))

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """Nobody listens."""

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        """Nothing is left over."""

    def suppress(self) -> None:
        """Offers come only when they are asked for anyway."""


def _ports(info: Mapping[str, Any]) -> Iterator[int]:
    for resource in info["resources"]:
        if resource["name"] == "ports":
            for each in resource["ranges"]["range"]:
                yield from range(each["begin"], each["end"] + 1)


def _gpus(info: Mapping[str, Any]) -> int:
    amounts = (each["scalar"]["value"] for each in info["resources"] if each["name"] == "gpus")
    return int(sum(amounts))


def _is_monitor(info: Mapping[str, Any]) -> bool:
    labels = {each["key"]: each["value"] for each in info.get("labels", {}).get("labels", ())}
    return monitor_labels().items() <= labels.items()
