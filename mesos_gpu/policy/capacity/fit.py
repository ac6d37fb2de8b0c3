"""Test whether a request fits a node, how many times, and what prevents it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange, count_ports
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.apps.ports import enough
from mesos_gpu.policy.capacity.node import OF_POOL, OFF_GPUS, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.sharing.cards import Card, Order, least_opened, pick, tasks_on, tightest


@dataclass(frozen=True, slots=True)
class Chosen:
    """Node and GPUs chosen for a task."""

    agent_id: AgentId
    gpus: tuple[GpuId, ...]
    share: Share | None = None  # share of each GPU; None for whole GPUs
    opens: tuple[GpuId, ...] = ()  # GPUs that must first be opened to shares


@dataclass(frozen=True, slots=True)
class Fit:
    """Node with room for a number of tasks."""

    node: NodeCapacity
    slots: int  # number of tasks; UNLIMITED if they request nothing
    gpus: tuple[Gpu, ...] = ()  # suitable GPUs; of each model a multiple of what a task needs


@dataclass(frozen=True, slots=True)
class Misfit:
    """Reason why a task cannot start on a node."""

    stage: Stage
    shortfall: Resources = NOTHING  # missing amount of the one resource that does not suffice
    in_use: bool = False  # whether suitable GPUs are in use; otherwise Mesos offers fewer than are free
    kept_for: Reservation | None = None  # reservation that takes the room, if that is the reason


def room_for(request: Request, node: NodeCapacity, model: str | None = None) -> Fit:
    """Return how many tasks a node has room for, counting only amounts, ports, driver and GPUs.

    Whether the node may be used at all is tested by `fit`.

    Args:
        request: Requirements of one task.
        node: Capacity of the node.
        model: GPU model to use; None for any model that the request accepts.
    """
    slots = _slots(request, node)
    if not slots or not request.gpu.count:
        return Fit(node, slots)
    if request.gpu.share is not None:
        return _room_for_shares(request, node, model, slots)
    groups, size = node.usable(request.gpu, model), request.gpu.count
    slots = min(slots, sum(len(group) // size for group in groups))
    return Fit(node, slots, tuple([gpu for group in groups for gpu in group[: len(group) // size * size]]))


def _room_for_shares(request: Request, node: NodeCapacity, model: str | None, slots: int) -> Fit:
    """Return how many tasks that take shares of cards fit on a node.

    For tasks that take shares of several cards each, the count stops at the number of tasks of the job.

    Args:
        request: Requirements of one task.
        node: Capacity of the node.
        model: GPU model to use; None for any model that the request accepts.
        slots: Number of tasks for which all resources but GPUs suffice.
    """
    groups = node.cards(request, model)
    gpus = tuple([card.gpu for group in groups for card in group])
    if request.gpu.count == 1:
        return Fit(node, _tasks_of_one_card(request, node, groups, slots), gpus)
    left, count = node, 0
    while count < min(slots, request.tasks) and (chosen := share_for(request, left, model)) is not None:
        left, count = left.minus(request.resources, chosen.gpus, chosen.share), count + 1
    return Fit(node, count, gpus)


def _tasks_of_one_card(
    request: Request, node: NodeCapacity, groups: Sequence[Sequence[Card]], slots: int
) -> int:
    """Return how many one-card tasks have room, trying each number of cards to open.

    `slots` is the number of tasks for which all other resources suffice if no card is opened.
    """
    wish, best = node.wish(request), 0
    for opened in range(node.most_opened(request.resources) + 1):
        able = min(slots, (node.free - node.to_open(opened)).times(request.resources))
        best = max(best, min(able, tasks_on(wish, groups, opened)))
    return best


def share_for(
    request: Request, node: NodeCapacity, model: str | None = None, order: Order = tightest
) -> Chosen | None:
    """Return the GPUs of a node on which a task gets its share; None if there is no room.

    Args:
        request: Requirements of the task.
        node: Capacity of the node.
        model: GPU model to use; None for any model that the request accepts.
        order: Sort key of the cards; those with the lowest are taken.
    """
    if not _slots(request, node):
        return None
    most = node.most_opened(request.resources)
    cards = pick(node.cards(request, model), request.gpu.count, most, order) if most >= 0 else None
    if cards is None:
        return None
    ids = tuple([card.gpu.id for card in cards])
    return Chosen(node.agent_id, ids, cards[0].share, tuple([card.gpu.id for card in cards if card.opens]))


def soonest(request: Request, node: NodeCapacity, model: str | None, limit: tuple[float, int]) -> int | None:
    """Return how many allocations of a node must end, the soonest first, before a task has room.

    Args:
        request: Requirements of the task.
        node: Capacity of the node, with its allocations.
        model: GPU model to use; None for any model that the request accepts.
        limit: Latest end and largest number of allocations to consider.

    Returns:
        None if the limit is exceeded. The result is an estimate: `room_for` decides for the node without those
            allocations.
    """
    if node.parts or request.gpu.share is not None:
        return _soonest_of_shares(request, node, model, limit)
    free, want = node.free, request.gpu
    gpus, ended = len(want.suited(node.gpus, model)) if want.count else 0, 0
    while gpus < want.count or not free.covers(request.resources):
        if ended == len(node.allocations):
            return None
        allocation = node.allocations[ended]
        ended += 1
        if (allocation.ends_at, ended) > limit:
            return None
        free += allocation.resources
        gpus += len(want.suited(allocation.gpus, model)) if want.count else 0
    return ended


def _soonest_of_shares(
    request: Request, node: NodeCapacity, model: str | None, limit: tuple[float, int]
) -> int | None:
    """Find the number for `soonest` by bisection, for shared GPUs: a task that has room keeps it as more tasks end."""
    within = [i for i, allocation in enumerate(node.allocations, 1) if (allocation.ends_at, i) <= limit]

    def has_room(ended: int) -> bool:
        return room_for(request, node.without(node.allocations[:ended]), model).slots > 0

    # Start near the end: similar nodes differ only in their last allocations.
    low, high, middle = 0, len(within), len(within) - 1
    if not has_room(high):
        return None
    while low < high:
        low, high = (low, middle) if has_room(middle) else (middle + 1, high)
        middle = (low + high) // 2
    return low


def _slots(request: Request, node: NodeCapacity) -> int:
    """Return how many tasks a node has room for in driver, amounts and ports, ignoring GPUs."""
    if not as_new_as(node.driver, request.min_driver):
        return 0
    slots = node.free.times(request.resources)
    if node.ports is None or not slots:
        return slots
    if request.tasks > 1:
        return min(slots, count_ports(node.ports))
    return slots if enough(request.ports, node.ports) else 0


def fit(request: Request, node: NodeCapacity) -> Fit | Misfit:
    """Return how many tasks may start on a node now, or the first reason why none may."""
    if request.gpu.share is None and _is_open(node) and (node.installed or not request.gpu.count):
        room = room_for(request, node)
        if room.slots:
            return room  # fast path: the placement index mostly proposes nodes with room
    against = next(misfits(request, node), None)
    return against if against is not None else room_for(request, beside_all(node))


def _is_open(node: NodeCapacity) -> bool:
    """Return whether only the amounts of a node can keep a task off it."""
    closed = node.drained or node.lost or node.silent or node.ruled_out or node.barred or node.paced
    return node.offered and not closed and not node.kept


def beside_all(node: NodeCapacity) -> NodeCapacity:
    """Return the node without everything that is reserved on it for others."""
    for reservation in node.kept:
        node = node.beside(reservation)
    return node


def misfits(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """Yield all reasons why a task cannot start on a node, in order of stages.

    Reservations are a reason only if nothing else is.
    """
    if node.drained or node.lost:
        yield Misfit(Stage.DRAINED if node.drained else Stage.LOST)
        return
    reasons = [*_closed(request, node), *_lacking(request, node)]
    yield from reasons
    if reasons:
        return
    if node.paced or not node.offered:
        yield Misfit(Stage.PACE if node.paced else Stage.OFFER)
        return
    for reservation in node.kept:
        node = node.beside(reservation)
        if not room_for(request, node).slots:
            yield Misfit(Stage.KEPT, kept_for=reservation)
            return


def _ruled_out(reason: str) -> Stage:
    """Return the stage of a reason in `NodeCapacity.ruled_out` or `barred`."""
    if reason == OFF_GPUS:
        return Stage.SCARCE
    return Stage.POOL if reason.startswith(OF_POOL) else Stage.CONSTRAINT


def _closed(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """Yield reasons that do not depend on what is free."""
    if node.silent and request.gpu.count:
        yield Misfit(Stage.UNREPORTED)
    if node.ruled_out or node.barred:
        yield Misfit(_ruled_out(node.ruled_out or node.barred))
    if not as_new_as(node.driver, request.min_driver):
        yield Misfit(Stage.DRIVER)


def _lacking(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """Yield the resources that do not suffice; GPUs in use come last, since a job waits for those to become free."""
    gpus = _of_gpus(request, node) if request.gpu.count and not node.silent else None
    if gpus is not None and gpus.stage is not Stage.GPUS:
        yield gpus
    if node.offered:
        shortfall = node.free.lacking(request.resources + _to_open(request, node)).with_gpus(0)
        yield from (
            Misfit(Stage(amount.mesos), shortfall_of_one) for amount, shortfall_of_one in shortfall.each()
        )
    if node.ports is not None and not _has_ports(request, node.ports):
        yield Misfit(Stage.PORTS)
    if gpus is not None and gpus.stage is Stage.GPUS:
        yield gpus


def _to_open(request: Request, node: NodeCapacity) -> Resources:
    """Return the least amount that opening GPUs for the shares takes; NOTHING if none must or can be opened."""
    if request.gpu.share is None:
        return NOTHING
    return node.to_open(least_opened(node.cards(request), request.gpu.count) or 0)


def _has_ports(request: Request, ports: Sequence[PortRange]) -> bool:
    """Return whether free ports suffice for a request."""
    return bool(ports) if request.tasks > 1 else enough(request.ports, ports)


def _of_gpus(request: Request, node: NodeCapacity) -> Misfit | None:
    """Return the first reason why a node's GPUs do not suffice."""
    want, size = request.gpu, request.gpu.count
    groups = want.of_any_size().by_model(node.installed)
    if not groups and node.installed:
        return Misfit(Stage.MODEL)
    if largest(groups) < size:
        return Misfit(Stage.SIZE)
    if want.choosy:
        if largest(want.of_any_capability().by_model(node.installed)) < size:
            return Misfit(Stage.MEMORY)
        groups = want.by_model(node.installed)
        if largest(groups) < size:
            return Misfit(Stage.COMPUTE_CAPABILITY)
    if want.share is not None:
        groups = [[card.gpu for card in group] for group in node.cards(request, even_full=True)]
        if largest(groups) < size:
            return Misfit(Stage.ISOLATION)
        opened = least_opened(node.cards(request), size)
        return _in_use(size, groups, None if opened is None else node.to_open(opened).gpus, node)
    usable = largest(node.usable(want))
    return _in_use(size, groups, size if usable >= size else None, node, size - usable)


def _in_use(
    size: int, groups: Sequence[Sequence[Gpu]], takes: int | None, node: NodeCapacity, lacks: int = 1
) -> Misfit | None:
    """Return why suitable GPUs are not free.

    Args:
        size: Number of GPUs that a task requests.
        groups: Suitable GPUs by model, whatever holds them and whatever their health.
        takes: Number of offered GPUs that the task needs; None if the free ones do not suffice in any case.
        node: Node of the GPUs.
        lacks: Number of GPUs that are missing in that case.
    """
    if takes is None:
        if largest([[gpu for gpu in group if gpu.health is Health.OK] for group in groups]) < size:
            return Misfit(Stage.HEALTH)
        return Misfit(Stage.GPUS, NOTHING.with_gpus(lacks), in_use=True)
    if node.offered and node.free.gpus < takes:
        return Misfit(Stage.GPUS, NOTHING.with_gpus(takes - node.free.gpus))
    return None


def largest(groups: Iterable[Sequence[Gpu]]) -> int:
    """Return the number of GPUs in the largest group; 0 without groups."""
    return max(map(len, groups), default=0)
