"""What is asked for, what is free, and the one answer to whether it fits. Pure.

Whoever decides (a match, a reservation, a gang, preemption, a plan of moves) and whoever explains asks `room_for` or
`fit`. The arrays of `policy.cluster` are an index over the same: they say where to look.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange, count_ports
from mesos_gpu.model.resources import NOTHING, Resources, total
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.apps.ports import enough
from mesos_gpu.policy.sharing.cards import (
    Card,
    Order,
    Wish,
    cards_of,
    could,
    least_opened,
    pick,
    tasks_on,
    tightest,
)
from mesos_gpu.policy.sharing.methods import choose
from mesos_gpu.policy.sharing.parts import GpuPart, unshared

ENDLESS: Final = inf
_ONE_GPU: Final = Resources(gpus=1)
OFF_GPUS: Final = "has GPUs, and this work without GPUs keeps off such nodes"


# --- what is asked for


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that one task needs."""

    count: int = 0
    models: tuple[str, ...] = ()  # ordered fallbacks; empty: any
    memory_mib: int | None = None  # that each has at least; None: any
    compute_capability: str | None = None  # the oldest that will do, "8.0"; None: any
    share: ShareRequest | None = None  # of each; None: all of it

    @property
    def choosy(self) -> bool:
        """Whether GPUs of one model may differ in whether they will do."""
        return self.memory_mib is not None or self.compute_capability is not None

    def of_any_size(self) -> "GpuRequest":
        """Leave out what is demanded of each GPU but its model."""
        return replace(self, memory_mib=None, compute_capability=None) if self.choosy else self

    def of_any_capability(self) -> "GpuRequest":
        """Leave out the compute capability that is demanded."""
        return self if self.compute_capability is None else replace(self, compute_capability=None)

    def takes(self, gpu: Gpu) -> bool:
        """Whether a GPU will do, whatever its model; one whose capability is not known will not where it counts."""
        enough_memory = self.memory_mib is None or gpu.memory_mib >= self.memory_mib
        return enough_memory and as_new_as(gpu.compute_capability, self.compute_capability)

    def suited(self, gpus: Iterable[Gpu], model: str | None = None) -> list[Gpu]:
        """GPUs that will do, of one model; None: of whatever model the request accepts."""
        if model is not None:
            gpus = [gpu for gpu in gpus if gpu.model == model]
        elif self.models:
            gpus = [gpu for gpu in gpus if gpu.model in self.models]
        return [gpu for gpu in gpus if self.takes(gpu)] if self.choosy else list(gpus)

    def by_model(self, gpus: Iterable[Gpu], model: str | None = None) -> list[list[Gpu]]:
        """GPUs that will do, by model: a task never gets a mix."""
        groups: dict[str, list[Gpu]] = {}
        for gpu in self.suited(gpus, model):
            groups.setdefault(gpu.model, []).append(gpu)
        return list(groups.values())


@dataclass(frozen=True, slots=True)
class Request:
    """What one task of a job needs of a node, its executor included."""

    resources: Resources  # with the count of GPUs
    gpu: GpuRequest = GpuRequest()
    min_driver: str | None = None  # the oldest driver that will do; None: any, or none at all
    tasks: int = 1  # that start together; each of several takes a port
    user: str | None = None  # as whom it runs; None: the executor's own user
    ports: tuple[PortWish, ...] = ()  # of its host, of a job of one task

    def of_model(self, model: str | None) -> "Request":
        """The request for GPUs of one model; None: as it is."""
        return self if model is None else replace(self, gpu=replace(self.gpu, models=(model,)))

    def each_model(self) -> Sequence["Request"]:
        """A request for each model that is named, the first choice first: the tasks of a gang get GPUs of one model."""
        return [self.of_model(model) for model in self.gpu.models] or [self]


# --- what is held, and what is kept


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a task holds of its node, and gives back when it ends. Times are seconds since the epoch."""

    job_id: JobId | None  # None: a node monitor
    resources: Resources
    gpus: tuple[Gpu, ...] = ()  # those that another job could use then
    since: float = 0.0
    ends_at: float = ENDLESS
    lasts_s: float | None = None  # what `ends_at` follows from; None: it is being ended, or nothing is known
    learnt: str = ""  # where `lasts_s` comes from, in words; "": it is the job's time limit
    share: Share | None = None  # what it holds of each of `gpus`; None: all of it
    counted_milli: int = 0  # thousandths of GPUs, in any health, that count against its queue's limit


def by_end(allocations: Iterable[Allocation]) -> list[Allocation]:
    """The soonest to end first; of those that nobody knows, the ones with GPUs, then the oldest."""
    return sorted(allocations, key=lambda held: (held.ends_at, not held.gpus, held.since, str(held.job_id)))


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for a job, from now until it starts."""

    job_id: JobId
    queue: str
    resources: Resources  # of all its tasks there
    at: float  # when it can start at the latest; ENDLESS: nobody knows
    agent_id: AgentId | None = None  # None: no node, only a share of its queue's limit
    hostname: str = ""
    gpus: frozenset[GpuId] = frozenset()  # wholly
    spare: Resources = NOTHING  # what others may hold of the node at that time; of GPUs: all but `gpus`
    spare_milli: float = inf  # thousandths of GPUs that others of its queue may hold at that time
    awaited: tuple[Allocation, ...] = ()  # what must end before, by the time of its end
    shares: tuple[tuple[GpuId, Share], ...] = ()  # that are kept on GPUs that are open
    beside: tuple[GpuPart, ...] = ()  # what others may hold of those at that time

    @property
    def kept(self) -> Resources:
        """Amounts that are kept. GPUs are kept one by one."""
        return self.resources.without_gpus()


# --- what is free


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node as a job can use it: what is free there, now or when some of what it holds has ended."""

    agent_id: AgentId
    hostname: str
    free: Resources = NOTHING  # its GPUs: Mesos' count, which does not say which they are
    gpus: tuple[Gpu, ...] = ()  # healthy, and free wholly or in part
    parts: tuple[GpuPart, ...] = ()  # of those that are open to shares
    compute_milli: int = WHOLE  # thousandths of a GPU's compute that all its shares together may have
    cover: Resources = _ONE_GPU  # what opening a GPU to shares takes of `free`
    keeper: Resources = NOTHING  # what opening one takes beside that; NOTHING: what covers GPUs runs there
    ports: tuple[PortRange, ...] | None = None  # None: they are not counted
    allocations: tuple[Allocation, ...] = ()  # that end and give back, in the order of `by_end`
    given_back: Resources = NOTHING  # by all of those together, and for what is open to shares now
    installed: tuple[Gpu, ...] = ()  # all its GPUs, in any health
    driver: str | None = None  # None: it has none, or it is not known
    # What else may keep a job off it, in words; "": it does not.
    offered: bool = True  # whether any offer of it is held: else what is free is not known
    holders: Mapping[GpuId, str] = field(
        default_factory=dict
    )  # of its GPUs, those that something holds: what
    lost: str = ""  # since when
    silent: str = ""  # why its GPUs are not known
    drained: str = ""  # why nothing at all may start there
    barred: str = ""  # which constraint keeps the job off it now
    ruled_out: str = ""  # which one does so whatever runs where
    kept: tuple[Reservation, ...] = ()  # for others, and the job must leave it alone

    def minus(
        self, resources: Resources, gpu_ids: Collection[GpuId] = (), share: Share | None = None
    ) -> "NodeCapacity":
        """After a launch that takes that, and those GPUs wholly, or a share of each: then some may be opened."""
        if share is None:
            return replace(self, free=self.free - resources, gpus=_others(self.gpus, gpu_ids))
        parts = {part.gpu_id: part for part in self.parts}
        opened = [gpu for gpu in self.gpus if gpu.id in gpu_ids and gpu.id not in parts]
        parts |= {gpu.id: unshared(gpu, self.compute_milli) for gpu in opened}
        return replace(
            self,
            free=self.free - resources - self.to_open(len(opened)),
            parts=tuple([part.less(share) if part.gpu_id in gpu_ids else part for part in parts.values()]),
            keeper=NOTHING if opened else self.keeper,
        )

    def to_open(self, count: int) -> Resources:
        """What it takes of `free` to open so many GPUs to shares."""
        return self.cover.scaled(count) + self.keeper if count else NOTHING

    def without(self, ended: Collection[Allocation]) -> "NodeCapacity":
        """When those allocations have ended: a GPU whose last share ends is a whole one again."""
        if not ended:
            return self.closed() if self.parts else self
        back = total(held.resources for held in ended)
        gone = {id(held) for held in ended}
        parts = self._given_back([held for held in ended if held.share]) if self.parts else ()
        node = replace(
            self,
            free=self.free + back,
            gpus=(*self.gpus, *(gpu for held in ended if held.share is None for gpu in held.gpus)),
            parts=parts,
            allocations=tuple(held for held in self.allocations if id(held) not in gone),
            given_back=self.given_back - back,
        )
        return node.closed() if parts else node

    def _given_back(self, ended: Iterable[Allocation]) -> tuple[GpuPart, ...]:
        parts = self._parts()
        for held in ended:
            for gpu in held.gpus:
                if held.share is not None and gpu.id in parts:
                    empty = unshared(gpu, self.compute_milli)
                    parts[gpu.id] = parts[gpu.id].more(held.share, empty)
        return tuple(parts.values())

    def _covers(self, count: int) -> Resources:
        """What comes back for so many GPUs that are open no longer."""
        return self.cover.with_gpus(1).scaled(count)

    def closed(self, only: Collection[GpuId] | None = None) -> "NodeCapacity":
        """When GPUs are no longer open that no share is on: they come last among the free ones. `only`: of these."""
        parts = {part.gpu_id: part for part in self.parts}
        gpus = self.gpus if only is None else [gpu for gpu in self.gpus if gpu.id in only]
        idle = [gpu for gpu in gpus if parts.get(gpu.id) == unshared(gpu, self.compute_milli)]
        if not idle:
            return self
        ids = {gpu.id for gpu in idle}
        back = self._covers(len(idle))
        return replace(
            self,
            free=self.free + back,
            given_back=self.given_back - back,
            gpus=(*_others(self.gpus, ids), *idle),
            parts=tuple([part for part in self.parts if part.gpu_id not in ids]),
        )

    def holding(self, allocations: Iterable[Allocation]) -> "NodeCapacity":
        """The node with what holds the rest of it."""
        ordered = tuple(by_end(allocations))
        back = total(held.resources for held in ordered) + self._covers(len(self.parts))
        return replace(self, allocations=ordered, given_back=back)

    def keeping(self, reservations: Iterable[Reservation]) -> "NodeCapacity":
        """What is left when those have all that is kept for them."""
        mine = [reservation for reservation in reservations if reservation.agent_id == self.agent_id]
        if not mine:
            return self
        ids = frozenset[GpuId]().union(*(reservation.gpus for reservation in mine))
        node = self._less(self.free - total(reservation.kept for reservation in mine), ids)
        for gpu_id, share in (kept for reservation in mine for kept in reservation.shares):
            parts = [part.less(share) if part.gpu_id == gpu_id else part for part in node.parts]
            node = replace(node, parts=tuple(parts))
        return node

    def beside(self, reservation: Reservation) -> "NodeCapacity":
        """The node as a launch may use it that outlasts a reservation: no more than is to spare at its time."""
        gpus = self.free.gpus
        if not reservation.resources.gpus:  # those that are kept to be opened take as many of the offer
            gpus -= sum(gpu.id in reservation.gpus for gpu in self.gpus)
        node = self._less(self.free.least(reservation.spare.with_gpus(gpus)), reservation.gpus)
        if not reservation.beside:
            return node
        spare = {part.gpu_id: part for part in reservation.beside}
        parts = [p.least(spare[p.gpu_id]) if p.gpu_id in spare else p for p in node.parts]
        return replace(node, parts=tuple(parts))

    def _less(self, free: Resources, kept: Collection[GpuId]) -> "NodeCapacity":
        allocations = self.allocations
        if kept and any(gpu.id in kept for held in allocations for gpu in held.gpus):
            allocations = tuple(replace(held, gpus=_others(held.gpus, kept)) for held in allocations)
        return replace(self, free=free, gpus=_others(self.gpus, kept), allocations=allocations)

    @property
    def models(self) -> list[str]:
        """The models of all its GPUs, each once, sorted."""
        return sorted({gpu.model for gpu in self.installed or self.gpus})

    def usable(self, request: GpuRequest, model: str | None = None) -> list[list[Gpu]]:
        """The GPUs that are free wholly and will do, by model; None: of whatever model the request accepts."""
        gpus = _others(self.gpus, {part.gpu_id for part in self.parts}) if self.parts else self.gpus
        return request.by_model(gpus, model)

    def cards(
        self, request: "Request", model: str | None = None, *, even_full: bool = False
    ) -> list[list[Card]]:
        """The GPUs on which a task would be granted its share, in groups of which it may have several.

        Args:
            request: Of which it asks for a share.
            model: Of the GPUs; None: whatever it accepts.
            even_full: Of all its GPUs, as if no task held any of them.
        """
        gpus, parts = (self.installed, {}) if even_full else (self.gpus, self._parts())
        return cards_of(self._wish(request), request.gpu.by_model(gpus, model), parts, even_full=even_full)

    def could_share(self, request: "Request") -> bool:
        """Whether GPUs of one model would do for its shares if no task held any; True: it asks for none."""
        groups = request.gpu.by_model(self.installed) if request.gpu.share else ()
        return not request.gpu.share or any(could(self._wish(request), group) for group in groups)

    def refusal(self, request: "Request", gpu: Gpu, *, even_full: bool = False) -> str:
        """Why a task gets no share of a GPU, in words that are said of it; "": it gets one. `even_full`: as `cards`."""
        wish, part = self._wish(request), None if even_full else self._parts().get(gpu.id)
        share = choose(wish.request, gpu, part, wish.user, cards=wish.count, compute_milli=wish.compute_milli)
        return share if isinstance(share, str) else ""

    def _parts(self) -> dict[GpuId, GpuPart]:
        return {part.gpu_id: part for part in self.parts}

    def _wish(self, request: "Request") -> Wish:
        share = request.gpu.share
        assert share is not None, "it asks for whole GPUs"
        return Wish(share, request.gpu.count, request.user, self.compute_milli)

    def most_opened(self, resources: Resources) -> int:
        """How many GPUs can be opened to shares beside what a task takes; below 0: there is no room for that."""
        parts = self._parts()
        most = sum(gpu.id not in parts for gpu in self.gpus)
        return next((n for n in range(most, -1, -1) if self.free.covers(resources + self.to_open(n))), -1)

    def _shares(self, request: "Request", groups: Sequence[Sequence[Card]], slots: int) -> int:
        """How many tasks of one card have room, some of them opened as need be; `slots`: by all else, if none is."""
        wish, best = self._wish(request), 0
        for opened in range(self.most_opened(request.resources) + 1):
            able = min(slots, (self.free - self.to_open(opened)).times(request.resources))
            best = max(best, min(able, tasks_on(wish, groups, opened)))
        return best

    def room_for_shares(self, request: "Request", model: str | None, slots: int) -> "Fit":
        """How many tasks have room; of those that ask for several cards no more are counted than the job has.

        Args:
            request: Of which each asks for shares.
            model: Of the GPUs; None: whatever it accepts.
            slots: How many have room by all but GPUs.
        """
        groups = self.cards(request, model)
        gpus = tuple([card.gpu for group in groups for card in group])
        if request.gpu.count == 1:
            return Fit(self, self._shares(request, groups, slots), gpus)
        node, count = self, 0
        while count < min(slots, request.tasks) and (chosen := share_for(request, node, model)) is not None:
            node, count = node.minus(request.resources, chosen.gpus, chosen.share), count + 1
        return Fit(self, count, gpus)


def _others(gpus: tuple[Gpu, ...], ids: Collection[GpuId]) -> tuple[Gpu, ...]:
    return tuple([gpu for gpu in gpus if gpu.id not in ids]) if ids else gpus


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a task goes."""

    agent_id: AgentId
    gpus: tuple[GpuId, ...]
    share: Share | None = None  # of each of them; None: they are whole
    opens: tuple[GpuId, ...] = ()  # those that are to be opened to shares first


# --- whether it fits


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
        return node.room_for_shares(request, model, slots)
    groups, size = node.usable(request.gpu, model), request.gpu.count
    slots = min(slots, sum(len(group) // size for group in groups))
    return Fit(node, slots, tuple([gpu for group in groups for gpu in group[: len(group) // size * size]]))


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
    against = next(misfits(request, node), None)
    return against if against is not None else room_for(request, beside_all(node))


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
    if not node.offered:
        yield Misfit(Stage.OFFER)
        return
    for reservation in node.kept:
        node = node.beside(reservation)
        if not room_for(request, node).slots:
            yield Misfit(Stage.KEPT, kept_for=reservation)
            return


def _closed(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """Why it may not be used, whatever is free."""
    if node.silent and request.gpu.count:
        yield Misfit(Stage.UNREPORTED)
    if node.ruled_out or node.barred:
        yield Misfit(Stage.SCARCE if node.ruled_out == OFF_GPUS else Stage.CONSTRAINT)
    if not as_new_as(node.driver, request.min_driver):
        yield Misfit(Stage.DRIVER)


def _lacking(request: Request, node: NodeCapacity) -> Iterator[Misfit]:
    """What there is too little of. GPUs in use come last: they are what is waited for."""
    gpus = _of_gpus(request, node) if request.gpu.count and not node.silent else None
    if gpus is not None and gpus.stage is not Stage.GPUS:
        yield gpus
    if node.offered:
        shortfall = node.free.lacking(request.resources + _to_open(request, node)).without_gpus()
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
        return Misfit(Stage.GPUS, Resources(gpus=lacks), in_use=True)
    if node.offered and node.free.gpus < takes:
        return Misfit(Stage.GPUS, Resources(gpus=takes - node.free.gpus))
    return None


def largest(groups: Iterable[Sequence[Gpu]]) -> int:
    """How many GPUs the largest group has; 0: there is none."""
    return max(map(len, groups), default=0)
