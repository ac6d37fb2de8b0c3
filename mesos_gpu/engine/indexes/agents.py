"""What follows from nodes and offers, and would cost a look at all agents.

Nothing here is saved. It is made when it is first asked for, and each change of the state is entered.
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
    """An offer that is held."""

    number: int  # grows with each that arrives
    offer: Offer


class Report(NamedTuple):
    """A report as its bytes were, and what they were read as.

    They are kept themselves, 30 MB of ten thousand agents: to make a digest lets go of Python's lock, and other threads
    have the engine wait for it at each report.
    """

    data: bytes
    inventory: Inventory


@dataclass(slots=True)
class Agents:
    """Agents by what a step looks for.

    Attributes:
        offers: Of each agent that offers something, oldest first.
        reserved: Those of whose offers something is reserved for shared cards.
        unwatched: Those without a monitor.
        lost: Those that are lost.
        backed_off: Agents that get no launches for some time, because their executors did not register.
        naming: By GPU, those whose latest report names it.
        named_twice: GPUs that several of them name.
        places: By host name and address, those that were seen there: of several, all but one are gone for good.
        crowded: Places of several.
        cards: Number of GPUs by model, of all nodes.
        models: Models of all GPUs.
        reports: The latest of each agent, as long as its node has what it was read as.
        arrivals: How many offers have been held so far.
        made_fabric: Groups of all nodes; None before they are asked for.
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
        """An offer has come, or one that is held has become another; it keeps its place."""
        own = self.offers.setdefault(offer.agent_id, {})
        known = own.get(offer.id)
        self.arrivals += known is None
        own[offer.id] = Held(self.arrivals if known is None else known.number, offer)
        _mark(self.reserved, offer.agent_id, _is_reserved(own))

    def drop(self, offer: Offer) -> None:
        """An offer is not held any more."""
        own = self.offers[offer.agent_id]
        del own[offer.id]
        if not own:
            del self.offers[offer.agent_id]
        _mark(self.reserved, offer.agent_id, _is_reserved(own))

    def drop_all(self) -> None:
        """No offer is held any more."""
        self.offers.clear()
        self.reserved.clear()

    def in_order(self, agents: Iterable[AgentId]) -> list[AgentId]:
        """Select the agents that offer something, in the order of their oldest offers."""
        offering = [agent_id for agent_id in agents if agent_id in self.offers]
        return sorted(offering, key=self._rank)

    def _rank(self, agent_id: AgentId) -> int:
        return next(iter(self.offers[agent_id].values())).number

    def enter(self, old: Node | None, new: Node | None) -> None:
        """A node has become another; None: it was not there, or is not any more."""
        node = new or old
        assert node is not None, "a node that never was cannot go"
        if old is None or new is None or _of_fabric(old) != _of_fabric(new):
            self.made_fabric = None
        if new is None:
            for known in (self.unwatched, self.lost, self.backed_off, self.reports):
                known.pop(node.id, None)
        else:
            _mark(self.unwatched, new.id, new.monitor is None)
            _mark(self.lost, new.id, new.lost_at is not None)
            _mark(self.backed_off, new.id, new.launch_not_before > 0.0)
        if old is not None and new is not None and old.gpus is new.gpus and _address(old) == _address(new):
            return  # most changes are reports that say the same again
        if (was := _place(old)) != (at := _place(new)):
            if was is not None:
                self._stand(was, [each for each in self.places[was] if each != node.id])
            if at is not None:
                self._stand(at, [*self.places.get(at, ()), node.id])
        self._count(old, new)
        named, names = _named(old), _named(new)
        if named == names:
            return
        for gpu_id in named:
            self._name(gpu_id, [each for each in self.naming.get(gpu_id, ()) if each != node.id])
        for gpu_id in names:
            self._name(gpu_id, [*self.naming.get(gpu_id, ()), node.id])

    def _count(self, old: Node | None, new: Node | None) -> None:
        """Count the GPUs of a node by their models."""
        was, now = (Counter([gpu.model for gpu in node.gpus] if node else ()) for node in (old, new))
        if was == now:
            return
        self.cards.subtract(was)
        self.cards.update(now)
        self.cards = +self.cards  # without those of which none is left
        if self.cards.keys() != self.models:
            self.models = frozenset(self.cards)

    def _stand(self, place: Place, agents: list[AgentId]) -> None:
        self.places[place] = tuple(agents)
        if not agents:
            del self.places[place]
        if len(agents) > 1:
            self.crowded[place] = None
        else:
            self.crowded.pop(place, None)

    def _name(self, gpu_id: GpuId, agents: list[AgentId]) -> None:
        self.naming[gpu_id] = tuple(dict.fromkeys(agents))
        _mark(self.named_twice, gpu_id, len(self.naming[gpu_id]) > 1)
        if not self.naming[gpu_id]:
            del self.naming[gpu_id]

    def others_naming(self, node: Node, gpus: Iterable[GpuId]) -> bool:
        """Whether another agent than a node's names one of some GPUs."""
        return any(each != node.id for gpu_id in gpus for each in self.naming.get(gpu_id, ()))

    def latest(self, gpu_id: GpuId, nodes: Mapping[AgentId, Node]) -> Node | None:
        """The node of `nodes` that reported a GPU last; None: no latest report of any names it."""
        naming = self.naming.get(gpu_id, ())
        if len(naming) > 1:
            # Of those that are alike the last of all nodes.
            return sorted((node for node in nodes.values() if node.id in naming), key=latest_last)[-1]
        return nodes[naming[0]] if naming else None

    def read_as(self, node: Node, data: bytes) -> Inventory | None:
        """What a node's report says if its latest one was the same, byte for byte; None: that was another."""
        known = self.reports.get(node.id)
        same = known is not None and known.inventory is node.inventory and known.data == data
        return node.inventory if same else None

    def note_report(self, agent_id: AgentId, data: bytes, inventory: Inventory) -> None:
        """Remember how a report was read."""
        self.reports[agent_id] = Report(data, inventory)


def agents_of(nodes: Iterable[Node], offers: Iterable[Offer]) -> Agents:
    """The agents of a state."""
    agents = Agents()
    for node in nodes:
        agents.enter(None, node)
    for offer in offers:
        agents.hold(offer)
    return agents


def latest_last(node: Node) -> tuple[bool, float]:
    """The key of an order of nodes by their latest reports, of lost ones first."""
    return node.lost_at is None, node.reported_at or 0.0


def _mark(known: dict[K, None], key: K, is_so: bool) -> None:
    if is_so:
        known.setdefault(key)
    else:
        known.pop(key, None)


def _is_reserved(offers: Mapping[OfferId, Held]) -> bool:
    return any(owner_of(scalar) is not None for held in offers.values() for scalar in held.offer.resources)


def _of_fabric(node: Node) -> tuple[object, ...]:
    return node.attributes, node.hostname, node.lost_at is None


def _address(node: Node) -> Place:
    return node.hostname, node.agent_url


def _place(node: Node | None) -> Place | None:
    """None: of no node, or of one whose address nobody said."""
    return (node.hostname, node.agent_url) if node is not None and node.agent_url else None


def _named(node: Node | None) -> tuple[GpuId, ...]:
    return () if node is None else tuple([gpu.id for gpu in node.gpus])
