"""What is left of agents' offers during one match, and what is launched from them: two books of its ledger."""

from collections.abc import Iterator
from dataclasses import dataclass

from mesos_gpu.engine.effects import Launch, LaunchTask
from mesos_gpu.engine.gpus.gpu_status import usable
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar, carve, resources_of
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.policy.apps.ports import without
from mesos_gpu.policy.capacity import NodeCapacity

Scalars = tuple[Scalar, ...]


@dataclass(slots=True)
class _Agent:
    """An agent's offers, and what is left of them."""

    node: Node
    offers: list[Offer]
    scalars: Scalars
    ports: tuple[PortRange, ...]
    gpus: tuple[Gpu, ...] | None = None  # None: not looked up yet


@dataclass(frozen=True, slots=True)
class _Carved:
    """What a take got, and what its agent had before."""

    task: Scalars
    executor: Scalars
    scalars: Scalars
    ports: tuple[PortRange, ...]
    gpus: tuple[Gpu, ...]


class Remains:
    """What is left of each agent's offers: scalars by their kinds, ports, GPUs."""

    def __init__(self, state: State, settings: Settings, now: float) -> None:
        """Put all offers that are held on the table.

        Args:
            state: The engine's.
            settings: The operator's.
            now: Seconds since the epoch.
        """
        self._state, self._settings, self._now = state, settings, now
        self._agents: dict[AgentId, _Agent] = {}
        self._carved: dict[Take, _Carved] = {}
        for offer in state.offers.values():
            agent = self._agents.get(offer.agent_id)
            if agent is None:
                node = state.nodes[offer.agent_id]
                self._agents[offer.agent_id] = _Agent(node, [offer], offer.resources, offer.ports)
            else:
                agent.offers.append(offer)
                agent.scalars += offer.resources
                agent.ports += offer.ports

    def __iter__(self) -> Iterator[AgentId]:
        """The agents that offer something, in the order of their oldest offers."""
        return iter(self._agents)

    def __contains__(self, agent_id: AgentId) -> bool:
        return agent_id in self._agents

    def offer_ids(self, agent_id: AgentId) -> tuple[OfferId, ...]:
        """The ids of an agent's offers."""
        return tuple(offer.id for offer in self._agents[agent_id].offers)

    def ports(self, agent_id: AgentId) -> tuple[PortRange, ...]:
        """The ports of an agent that nothing has taken."""
        return self._agents[agent_id].ports

    def resources(self, agent_id: AgentId) -> Resources:
        """What nothing has taken of an agent; NOTHING of one without offers."""
        agent = self._agents.get(agent_id)
        return NOTHING if agent is None else resources_of(agent.scalars)

    def capacity(self, agent_id: AgentId) -> NodeCapacity:
        """The agent as it could be used now."""
        agent = self._agents[agent_id]
        return NodeCapacity(
            agent.node.id,
            agent.node.hostname,
            resources_of(agent.scalars),
            self._gpus(agent),
            ports=agent.ports,
            installed=agent.node.gpus,
            driver=agent.node.driver_version,
        )

    def _gpus(self, agent: _Agent) -> tuple[Gpu, ...]:
        """Looked up when they are asked for: most matches of a thousand agents place nothing."""
        if agent.gpus is None:
            agent.gpus = tuple(usable(self._state, agent.node, self._now, self._settings))
        return agent.gpus

    def carved(self, take: Take) -> tuple[Scalars, Scalars]:
        """The scalars that a take got for its task and for its executor."""
        carved = self._carved[take]
        return carved.task, carved.executor

    # --- a book

    def take(self, take: Take) -> None:
        """Carve it out of its agent's offers."""
        agent = self._agents[take.agent_id]
        gpus = self._gpus(agent)
        task, left = carve(agent.scalars, take.task)
        executor, left = carve(left, take.executor)
        self._carved[take] = _Carved(tuple(task), tuple(executor), agent.scalars, agent.ports, gpus)
        agent.scalars = left
        agent.ports = without(take.ports, agent.ports) if take.ports else agent.ports
        agent.gpus = tuple([gpu for gpu in gpus if gpu.id not in take.gpus]) if take.gpus else gpus

    def undo(self, take: Take) -> None:
        """Put it back."""
        agent = self._agents[take.agent_id]
        before = self._carved.pop(take)
        agent.scalars, agent.ports, agent.gpus = before.scalars, before.ports, before.gpus


class Launches:
    """What is sent to each agent: an entry for each take, filled when its task is made."""

    def __init__(self) -> None:
        """Begin with none."""
        self._entries: dict[AgentId, dict[Take, LaunchTask | None]] = {}

    def fill(self, take: Take, item: LaunchTask) -> None:
        """Put what is launched into a take's entry."""
        assert self._entries[take.agent_id][take] is None, f"{item.task.id} is launched with another's take"
        self._entries[take.agent_id][take] = item

    def effects(self, remains: Remains) -> Iterator[Launch]:
        """A launch for each agent, in the order of their oldest offers."""
        for agent_id in remains:
            entries = self._entries.get(agent_id)
            if entries:
                items = tuple(item for item in entries.values() if item is not None)
                assert len(items) == len(entries), f"something of {agent_id} is taken, and not launched"
                yield Launch(remains.offer_ids(agent_id), items)

    # --- a book

    def take(self, take: Take) -> None:
        """Make an entry."""
        self._entries.setdefault(take.agent_id, {})[take] = None

    def undo(self, take: Take) -> None:
        """Drop it."""
        del self._entries[take.agent_id][take]
