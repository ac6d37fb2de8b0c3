"""Indexes of nodes and offers, without which a step would look at all agents.

They are not saved. They are built on first use, and each change of the state updates them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from mesos_gpu.model.ids import AgentId, GpuId, OfferId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.policy.nodes.levels import Fabric, fabric_of
from mesos_gpu.wire.mesos.reservations import owner_of

Place = tuple[str, str]  # host name and URL
K = TypeVar("K", AgentId, GpuId)


class Held(NamedTuple):
    """Offer that is held.

    Attributes:
        number: Number in the order of arrival.
    """

    number: int
    offer: Offer


class Report(NamedTuple):
    """Latest report of a monitor: its bytes, and the inventory that was read from them.

    The bytes themselves are kept (30 MB for ten thousand agents): computing a digest would release Python's lock, and
    other threads would delay the engine at each report.
    """

    data: bytes
    inventory: Inventory


@dataclass(slots=True)
class Agents:
    """Indexes of agents.

    Attributes:
        offers: Offers by agent, the oldest first.
        reserved: Agents whose offers have resources reserved for shared GPUs.
        unwatched: Agents without a monitor.
        lost: Agents that are lost.
        backed_off: Agents that get no launches for some time, because their executors did not register.
        naming: Agents whose latest report names a GPU, by GPU.
        named_twice: GPUs that several agents name.
        places: Agents seen at an address (host name and URL). Of several, all but one are gone for good.
        crowded: Addresses with several agents.
        cards: Number of GPUs by model, of all nodes.
        models: Models of all GPUs.
        reports: Latest report of each agent, as long as its node has the inventory that was read from it.
        arrivals: Number of offers held so far.
        made_fabric: Groups of all nodes; None until first used.
    """

    offers: dict[AgentId, dict[OfferId, Held]] = field(default_factory=dict)
    reserved: dict[AgentId, None] = field(default_factory=dict)
    unwatched: dict[AgentId, None] = field(default_factory=dict)
    lost: dict[AgentId, None] = field(default_factory=dict)
    backed_off: dict[AgentId, None] = field(default_factory=dict)
    naming: dict[GpuId, tuple[AgentId, ...]] = field(default_factory=dict)
    named_twice: dict[GpuId, None] = field(default_factory=dict)
    places: dict[Place, tuple[AgentId, ...]] = field(default_factory=dict)
    crowded: dict[Place, None] = field(default_factory=dict)
    cards: Counter[str] = field(default_factory=Counter)
    models: frozenset[str] = frozenset()
    reports: dict[AgentId, Report] = field(default_factory=dict, compare=False)
    arrivals: int = field(default=0, compare=False)
    made_fabric: Fabric | None = field(default=None, compare=False)

    def fabric(self, levels: Sequence[str], nodes: Mapping[AgentId, Node]) -> Fabric:
        """Return the groups of all nodes.

        Args:
            levels: Names of the levels, as of the settings, which do not change.
            nodes: Nodes of the state.
        """
        if self.made_fabric is None:
            self.made_fabric = fabric_of(levels, nodes.values())
        return self.made_fabric

    def hold(self, offer: Offer) -> None:
        """Enter an offer; one that is held already is replaced at its place."""
        own = self.offers.setdefault(offer.agent_id, {})
        old = own.get(offer.id)
        self.arrivals += old is None
        own[offer.id] = Held(self.arrivals if old is None else old.number, offer)
        _mark(self.reserved, offer.agent_id, _is_reserved(own))

    def drop(self, offer: Offer) -> None:
        """Remove an offer."""
        own = self.offers[offer.agent_id]
        del own[offer.id]
        if not own:
            del self.offers[offer.agent_id]
        _mark(self.reserved, offer.agent_id, _is_reserved(own))

    def drop_all(self) -> None:
        """Remove all offers."""
        self.offers.clear()
        self.reserved.clear()

    def in_order(self, agents: Iterable[AgentId]) -> list[AgentId]:
        """Select the agents that offer something, in the order of their oldest offers."""
        offering = [agent_id for agent_id in agents if agent_id in self.offers]
        return sorted(offering, key=self._rank)

    def _rank(self, agent_id: AgentId) -> int:
        """Return the number of an agent's oldest offer."""
        return next(iter(self.offers[agent_id].values())).number

    def enter(self, old: Node | None, new: Node | None) -> None:
        """Update the indexes after a change of a node.

        Args:
            old: Node before; None if it is new.
            new: Node now; None if it was removed.
        """
        node = new or old
        assert node is not None, "either the old or the new node exists"
        if old is None or new is None or _of_fabric(old) != _of_fabric(new):
            self.made_fabric = None
        if new is None:
            for index in (self.unwatched, self.lost, self.backed_off, self.reports):
                index.pop(node.id, None)
        else:
            _mark(self.unwatched, new.id, new.monitor is None)
            _mark(self.lost, new.id, new.lost_at is not None)
            _mark(self.backed_off, new.id, new.launch_not_before > 0.0)
        if old is not None and new is not None and old.gpus is new.gpus and _address(old) == _address(new):
            return  # most changes are reports without news
        if (was := _place(old)) != (at := _place(new)):
            if was is not None:
                self._set_agents_at(was, [agent_id for agent_id in self.places[was] if agent_id != node.id])
            if at is not None:
                self._set_agents_at(at, [*self.places.get(at, ()), node.id])
        self._count(old, new)
        named, names = _named(old), _named(new)
        if named == names:
            return
        for gpu_id in named:
            self._set_naming(
                gpu_id, [agent_id for agent_id in self.naming.get(gpu_id, ()) if agent_id != node.id]
            )
        for gpu_id in names:
            self._set_naming(gpu_id, [*self.naming.get(gpu_id, ()), node.id])

    def _count(self, old: Node | None, new: Node | None) -> None:
        """Count the GPUs of a node by their models."""
        models_before, models_now = (
            Counter([gpu.model for gpu in node.gpus] if node else ()) for node in (old, new)
        )
        if models_before == models_now:
            return
        self.cards.subtract(models_before)
        self.cards.update(models_now)
        self.cards = +self.cards  # drops models without GPUs
        if self.cards.keys() != self.models:
            self.models = frozenset(self.cards)

    def _set_agents_at(self, place: Place, agents: list[AgentId]) -> None:
        """Replace the agents at an address."""
        self.places[place] = tuple(agents)
        if not agents:
            del self.places[place]
        if len(agents) > 1:
            self.crowded[place] = None
        else:
            self.crowded.pop(place, None)

    def _set_naming(self, gpu_id: GpuId, agents: list[AgentId]) -> None:
        """Replace the agents whose reports name a GPU."""
        self.naming[gpu_id] = tuple(dict.fromkeys(agents))
        _mark(self.named_twice, gpu_id, len(self.naming[gpu_id]) > 1)
        if not self.naming[gpu_id]:
            del self.naming[gpu_id]

    def others_naming(self, node: Node, gpus: Iterable[GpuId]) -> bool:
        """Return whether the report of another agent names one of some GPUs."""
        return any(agent_id != node.id for gpu_id in gpus for agent_id in self.naming.get(gpu_id, ()))

    def latest(self, gpu_id: GpuId, nodes: Mapping[AgentId, Node]) -> Node | None:
        """Return the node that reported a GPU last; None if no latest report names it."""
        naming = self.naming.get(gpu_id, ())
        if len(naming) > 1:
            # Of nodes with equal times the last one counts.
            return sorted((node for node in nodes.values() if node.id in naming), key=latest_last)[-1]
        return nodes[naming[0]] if naming else None

    def read_as(self, node: Node, data: bytes) -> Inventory | None:
        """Return the inventory of a node if its latest report had exactly these bytes; None otherwise."""
        latest_report = self.reports.get(node.id)
        same = (
            latest_report is not None
            and latest_report.inventory is node.inventory
            and latest_report.data == data
        )
        return node.inventory if same else None

    def note_report(self, agent_id: AgentId, data: bytes, inventory: Inventory) -> None:
        """Store the bytes and the inventory of the latest report of an agent."""
        self.reports[agent_id] = Report(data, inventory)


def agents_of(nodes: Iterable[Node], offers: Iterable[Offer]) -> Agents:
    """Return the indexes of the agents of a state."""
    agents = Agents()
    for node in nodes:
        agents.enter(None, node)
    for offer in offers:
        agents.hold(offer)
    return agents


def latest_last(node: Node) -> tuple[bool, float]:
    """Return a sort key of nodes: lost ones first, then by the time of the latest report."""
    return node.lost_at is None, node.reported_at or 0.0


def _mark(index: dict[K, None], key: K, is_so: bool) -> None:
    """Add a key to an index, or remove it."""
    if is_so:
        index.setdefault(key)
    else:
        index.pop(key, None)


def _is_reserved(offers: Mapping[OfferId, Held]) -> bool:
    """Return whether any of some offers has reserved resources."""
    return any(owner_of(scalar) is not None for held in offers.values() for scalar in held.offer.resources)


def _of_fabric(node: Node) -> tuple[object, ...]:
    """Return the parts of a node on which its groups of the fabric depend."""
    return node.attributes, node.hostname, node.lost_at is None


def _address(node: Node) -> Place:
    return node.hostname, node.agent_url


def _place(node: Node | None) -> Place | None:
    """Return the address of a node; None without a node, or if its URL is not known."""
    return (node.hostname, node.agent_url) if node is not None and node.agent_url else None


def _named(node: Node | None) -> tuple[GpuId, ...]:
    """Return the ids of the GPUs that a node reports."""
    return () if node is None else tuple([gpu.id for gpu in node.gpus])
