"""Whether a request fits a node, how often, and what keeps it off."""

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
    """Where a task goes."""

    agent_id: AgentId
    gpus: tuple[GpuId, ...]
    share: Share | None = None  # of each of them; None: they are whole
    opens: tuple[GpuId, ...] = ()  # those that are to be opened to shares first


@dataclass(frozen=True, slots=True)
class Fit:
    """Room for some tasks."""

    node: NodeCapacity
    slots: int  # how many; UNLIMITED: they ask for nothing
    gpus: tuple[Gpu, ...] = ()  # that will do, of each model in sets as large as a task needs


@dataclass(frozen=True, slots=True)
class Misfit:
    """What keeps a task off a node."""

    stage: Stage
    shortfall: Resources = NOTHING  # how much more it asks for, of the one amount that is lacking
    in_use: bool = False  # of GPUs: they are there, and not free; else Mesos offers fewer than are free
    kept_for: Reservation | None = None  # whom it is kept for, where that is the reason


def room_for(request: Request, node: NodeCapacity, model: str | None = None) -> Fit:
    """How many tasks a node has room for, none of them included, with GPUs of one model or of any that will do.

    Whether the node may be used at all is for `fit` to say.
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
    """How many tasks have room; of those that ask for several cards no more are counted than the job has.

    Args:
        request: Of which each asks for shares.
        node: Where.
        model: Of the GPUs; None: whatever it accepts.
        slots: How many have room by all but GPUs.
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
    """How many tasks have room, some cards opened for them as need be; `slots`: by all else, if none is."""
    wish, best = node.wish(request), 0
    for opened in range(node.most_opened(request.resources) + 1):
        able = min(slots, (node.free - node.to_open(opened)).times(request.resources))
        best = max(best, min(able, tasks_on(wish, groups, opened)))
    return best


def share_for(
    request: Request, node: NodeCapacity, model: str | None = None, order: Order = tightest
) -> Chosen | None:
    """Where on the node a task gets its share; None: there is no room. `order`: what is taken first of several."""
    if not _slots(request, node):
        return None
    most = node.most_opened(request.resources)
    cards = pick(node.cards(request, model), request.gpu.count, most, order) if most >= 0 else None
    if cards is None:
        return None
    ids = tuple([card.gpu.id for card in cards])
    return Chosen(node.agent_id, ids, cards[0].share, tuple([card.gpu.id for card in cards if card.opens]))


def soonest(request: Request, node: NodeCapacity, model: str | None, limit: tuple[float, int]) -> int | None:
    """How many of its allocations must end, the soonest first, before a task has room on a node.

    Args:
        request: What the task needs.
        node: With its allocations.
        model: The GPUs' model; None: any that will do.
        limit: The latest end, and the most allocations, that are worth a look.

    Returns:
        None: Not within the limit. It counts as it goes: `room_for` has the last word on the node without them.
    """
    if node.parts or request.gpu.share is not None:
        return _soonest_of_shares(request, node, model, limit)
    free, want = node.free, request.gpu
    gpus, ended = len(want.suited(node.gpus, model)) if want.count else 0, 0
    while gpus < want.count or not free.covers(request.resources):
        if ended == len(node.allocations):
            return None
        held = node.allocations[ended]
        ended += 1
        if (held.ends_at, ended) > limit:
            return None
        free += held.resources
        gpus += len(want.suited(held.gpus, model)) if want.count else 0
    return ended


def _soonest_of_shares(
    request: Request, node: NodeCapacity, model: str | None, limit: tuple[float, int]
) -> int | None:
    """Bisect, where GPUs are shared: what has room once has room later, too. Arguments and answer as of `soonest`."""
    within = [i for i, held in enumerate(node.allocations, 1) if (held.ends_at, i) <= limit]

    def has_room(ended: int) -> bool:
        return room_for(request, node.without(node.allocations[:ended]), model).slots > 0

    low, high, middle = 0, len(within), len(within) - 1  # nodes that are alike differ in the last of them
    if not has_room(high):
        return None
    while low < high:
        low, high = (low, middle) if has_room(middle) else (middle + 1, high)
        middle = (low + high) // 2
    return low


def _slots(request: Request, node: NodeCapacity) -> int:
    """How many tasks the node has room for, by all but its GPUs."""
    if not as_new_as(node.driver, request.min_driver):
        return 0
    slots = node.free.times(request.resources)
    if node.ports is None or not slots:
        return slots
    if request.tasks > 1:
        return min(slots, count_ports(node.ports))
    return slots if enough(request.ports, node.ports) else 0


def fit(request: Request, node: NodeCapacity) -> Fit | Misfit:
    """Whether a task may start on the node now: how many have room, or the first reason against it."""
    if request.gpu.share is None and _is_open(node) and (node.installed or not request.gpu.count):
        room = room_for(request, node)
        if room.slots:
            return room  # most often: a node is looked at that has room by the arrays of placement
    against = next(misfits(request, node), None)
    return against if against is not None else room_for(request, beside_all(node))


def _is_open(node: NodeCapacity) -> bool:
    """Return whether only the amounts of a node can keep a task off it."""
    closed = node.drained or node.lost or node.silent or node.ruled_out or node.barred or node.paced
    return node.offered and not closed and not node.kept


def beside_all(node: NodeCapacity) -> NodeCapacity:
    """What a job may use that must leave alone what is kept there."""
    for reservation in node.kept:
        node = node.beside(reservation)
    return node


def misfits(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """All that keeps a task off the node, in the order of stages; what is kept for others only if nothing else does."""
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


def _ruled_out(words: str) -> Stage:
    if words == OFF_GPUS:
        return Stage.SCARCE
    return Stage.POOL if words.startswith(OF_POOL) else Stage.CONSTRAINT


def _closed(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """Why it may not be used, whatever is free."""
    if node.silent and request.gpu.count:
        yield Misfit(Stage.UNREPORTED)
    if node.ruled_out or node.barred:
        yield Misfit(_ruled_out(node.ruled_out or node.barred))
    if not as_new_as(node.driver, request.min_driver):
        yield Misfit(Stage.DRIVER)


def _lacking(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """What there is too little of. GPUs in use come last: they are what is waited for."""
    gpus = _of_gpus(request, node) if request.gpu.count and not node.silent else None
    if gpus is not None and gpus.stage is not Stage.GPUS:
        yield gpus
    if node.offered:
        shortfall = node.free.lacking(request.resources + _to_open(request, node)).with_gpus(0)
        yield from (Misfit(Stage(amount.mesos), only) for amount, only in shortfall.each())
    if node.ports is not None and not _has_ports(request, node.ports):
        yield Misfit(Stage.PORTS)
    if gpus is not None and gpus.stage is Stage.GPUS:
        yield gpus


def _to_open(request: Request, node: NodeCapacity) -> Resources:
    """What opening GPUs to its shares takes at the least; NOTHING: none need be opened, or none can help."""
    if request.gpu.share is None:
        return NOTHING
    return node.to_open(least_opened(node.cards(request), request.gpu.count) or 0)


def _has_ports(request: Request, ports: Sequence[PortRange]) -> bool:
    return bool(ports) if request.tasks > 1 else enough(request.ports, ports)


def _of_gpus(request: Request, node: NodeCapacity) -> Misfit | None:
    """The first thing that its GPUs lack."""
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
    """Why GPUs that would do are not free.

    Args:
        size: How many are asked for.
        groups: Those that would do if nothing held them, and they were well.
        takes: How many it takes of those that are offered; None: there are not enough, whatever is offered.
        node: Their node.
        lacks: How many are missing then.
    """
    if takes is None:
        if largest([[gpu for gpu in group if gpu.health is Health.OK] for group in groups]) < size:
            return Misfit(Stage.HEALTH)
        return Misfit(Stage.GPUS, NOTHING.with_gpus(lacks), in_use=True)
    if node.offered and node.free.gpus < takes:
        return Misfit(Stage.GPUS, NOTHING.with_gpus(takes - node.free.gpus))
    return None


def largest(groups: Iterable[Sequence[Gpu]]) -> int:
    """How many GPUs the largest group has; 0: there is none."""
    return max(map(len, groups), default=0)
