"""Nodes and their offers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mesos_gpu.engine.indexes.agents import Agents, agents_of, latest_last
from mesos_gpu.engine.indexes.memory import Capacity, Unreserved
from mesos_gpu.engine.indexes.table import Table
from mesos_gpu.engine.parts.metadata import DERIVED
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import AgentId, GpuId, OfferId
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.gpu_names import models_of
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, resources_of
from mesos_gpu.model.nodes.roll import MonitorReplacements
from mesos_gpu.model.resources import Resources, total
from mesos_gpu.policy.queueing.launch_window import Window


@dataclass(slots=True)
class ClusterPart:
    """Nodes and offers of the state.

    Attributes:
        nodes: Agents that have offered something, until they have been lost for long.
        drains: Drains of nodes and GPUs, by target and name.
        offers: Offers that are held.
        capacities: Largest amounts of each agent that were seen lately.
        windows: Launch windows of agents.
        unreserved: Agents whose reservations were given back, and that have not offered anything without them since.
        rolls: Replacement of node monitors.
        monitors: Number of launches of node monitors so far, so that no id is used twice.
        unused: Latest offer of each agent of which nothing was used, even if it was given back; for explanations.
        most_offered: Largest amounts that each agent has offered at once, for default amounts of jobs.
        touched: Agents that have changed since the table was made.
        table: Agents with offers, as the match uses them; None if it must be made again.
        made_agents: Index of nodes and offers; None until first used.
    """

    nodes: dict[AgentId, Node] = field(default_factory=dict)
    drains: dict[tuple[Target, str], Drain] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    capacities: dict[AgentId, Capacity] = field(default_factory=dict)
    windows: dict[AgentId, Window] = field(default_factory=dict)
    unreserved: dict[AgentId, Unreserved] = field(default_factory=dict)
    rolls: MonitorReplacements = field(default_factory=MonitorReplacements)
    monitors: int = 0
    unused: dict[AgentId, Offer] = field(default_factory=dict, compare=False, metadata=DERIVED)
    most_offered: dict[AgentId, Resources] = field(default_factory=dict, compare=False, metadata=DERIVED)
    touched: set[AgentId] = field(default_factory=set, compare=False, metadata=DERIVED)
    table: Table | None = field(default=None, compare=False, metadata=DERIVED)
    made_agents: Agents | None = field(default=None, compare=False, repr=False, metadata=DERIVED)

    @property
    def agents(self) -> Agents:
        """Index of nodes and offers."""
        if self.made_agents is None:
            self.made_agents = agents_of(self.nodes.values(), self.offers.values())
        return self.made_agents

    def models_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the models of known GPUs that names mean, the first choice first; other names stay."""
        return models_of(names, self.agents.models) if names else ()

    def hold_offer(self, offer: Offer) -> None:
        """Add an offer to those that are held."""
        self.agents.hold(offer)
        self.offers[offer.id] = self.unused[offer.agent_id] = offer
        offered = total(
            resources_of(held.offer.resources) for held in self.agents.offers[offer.agent_id].values()
        )
        self.most_offered[offer.agent_id] = offered.most(self.most_offered.get(offer.agent_id, offered))
        self.touched.add(offer.agent_id)

    def drop_offer(self, offer_id: OfferId) -> None:
        """Remove an offer that is used, given back or void, unless it was removed before."""
        offer = self.offers.pop(offer_id, None)
        if offer is not None:
            self.agents.drop(offer)
            self.touched.add(offer.agent_id)

    def drop_offers(self) -> None:
        """Remove all offers, which are void."""
        self.offers.clear()
        self.agents.drop_all()
        self.table = None

    def set_node(self, node: Node) -> None:
        """Add a node, or replace it."""
        self.agents.enter(self.nodes.get(node.id), node)
        self.nodes[node.id] = node

    def drop_node(self, agent_id: AgentId) -> None:
        """Remove a node that has been lost for long."""
        self.agents.enter(self.nodes.pop(agent_id), None)
        for index in (self.capacities, self.unreserved, self.windows, self.most_offered):
            index.pop(agent_id, None)

    def drain_of(self, hostname: str, gpu_id: GpuId | None = None) -> Drain | None:
        """Return the drain that keeps new work off a node, or off one GPU of it, or None.

        A GPU's own drain comes before that of its node.
        """
        if not self.drains:
            return None
        own = self.drains.get((Target.GPU, gpu_id)) if gpu_id else None
        return own or self.drains.get((Target.NODE, hostname))

    def placed(self, on: Callable[[str], bool] | None = None) -> dict[GpuId, tuple[Node, Gpu]]:
        """Return each GPU once, with the node that reported it last.

        A lost node may have the GPUs of its agent that has registered again.

        Args:
            on: Function that returns whether to include the GPUs of a host, by its name; None for all hosts.
        """
        nodes = [node for node in self.nodes.values() if on is None or on(node.hostname)]
        places = {gpu.id: (node, gpu) for node in sorted(nodes, key=latest_last) for gpu in node.gpus}
        if on is None:
            return places
        return {id: place for id, place in places.items() if self.agents.latest(id, self.nodes) is place[0]}

    def place_of(self, gpu_id: GpuId) -> tuple[Node, Gpu] | None:
        """Return a GPU with the node that reported it last, or None if no node did."""
        node = self.agents.latest(gpu_id, self.nodes)
        gpu = None if node is None else node.gpu(gpu_id)
        return None if node is None or gpu is None else (node, gpu)

    def known_gpu(self, gpu_id: GpuId) -> tuple[Node, Gpu]:
        """Return a GPU with the node that reported it last.

        Raises:
            NotFound: No node has reported it.
        """
        place = self.place_of(gpu_id)
        if place is None:
            raise NotFound(f"there is no GPU {gpu_id}", remedy="list the GPUs with: mesos-gpu gpus")
        return place
