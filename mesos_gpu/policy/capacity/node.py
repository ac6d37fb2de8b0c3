"""What a node has: what is free there, what tasks hold of it, and what is kept for jobs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import NOTHING, Resources, total
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.sharing.cards import Card, Wish, cards_of, could
from mesos_gpu.policy.sharing.methods import choose
from mesos_gpu.policy.sharing.parts import GpuPart, unshared

ENDLESS: Final = inf
_ONE_GPU: Final = Resources(gpus=1)
OF_POOL: Final = "is in pool "  # which the job may not use
OFF_GPUS: Final = "has GPUs, and this work without GPUs keeps off such nodes"


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
    counted_milli: int = 0  # of GPUs in any health, as limits count: thousandths of cost
    ports: tuple[PortRange, ...] = ()  # each of one port


def by_end(allocations: Iterable[Allocation]) -> list[Allocation]:
    """The soonest to end first; of those that nobody knows, the ones with GPUs, then the oldest."""
    return sorted(allocations, key=lambda held: (held.ends_at, not held.gpus, held.since, str(held.job_id)))


@dataclass(frozen=True, slots=True)
class Spare:
    """What of a queue's limit is left beside a job that waits for it.

    Attributes:
        queue: The queue: the job's, or one above it.
        pool: Of whose nodes it limits the use.
        milli: Thousandths of cost that others below it may hold when the job starts.
    """

    queue: str
    pool: str
    milli: float


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
    spares: tuple[Spare, ...] = ()  # of the limits that hold for it, its own queue's first
    awaited: tuple[Allocation, ...] = ()  # what must end before, by the time of its end
    shares: tuple[tuple[GpuId, Share], ...] = ()  # that are kept on GPUs that are open
    beside: tuple[GpuPart, ...] = ()  # what others may hold of those at that time
    booking: str = ""  # the id of the booking that it is for; then it is for no job
    is_given_up: bool = False  # whether it is of tasks that have ended for their gang to start again
    words: str = ""  # of a booking: from when to when it is there, as "booked from Tue 2026-12-01 09:00 to …"

    @property
    def kept(self) -> Resources:
        """Amounts that are kept. GPUs are kept one by one."""
        return self.resources.with_gpus(0)


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
    paced: str = ""  # reason why the node gets no further launch for now; "" if it may get launches
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
            ports=None
            if self.ports is None
            else (*self.ports, *(port for held in ended for port in held.ports)),
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
        self, request: Request, model: str | None = None, *, even_full: bool = False
    ) -> list[list[Card]]:
        """The GPUs on which a task would be granted its share, in groups of which it may have several.

        Args:
            request: Of which it asks for a share.
            model: Of the GPUs; None: whatever it accepts.
            even_full: Of all its GPUs, as if no task held any of them.
        """
        gpus, parts = (self.installed, {}) if even_full else (self.gpus, self._parts())
        return cards_of(self.wish(request), request.gpu.by_model(gpus, model), parts, even_full=even_full)

    def could_share(self, request: Request) -> bool:
        """Whether GPUs of one model would do for its shares if no task held any; True: it asks for none."""
        groups = request.gpu.by_model(self.installed) if request.gpu.share else ()
        return not request.gpu.share or any(could(self.wish(request), group) for group in groups)

    def refusal(self, request: Request, gpu: Gpu, *, even_full: bool = False) -> str:
        """Why a task gets no share of a GPU, in words that are said of it; "": it gets one. `even_full`: as `cards`."""
        wish, part = self.wish(request), None if even_full else self._parts().get(gpu.id)
        share = choose(wish.request, gpu, part, wish.user, cards=wish.count, compute_milli=wish.compute_milli)
        return share if isinstance(share, str) else ""

    def _parts(self) -> dict[GpuId, GpuPart]:
        return {part.gpu_id: part for part in self.parts}

    def wish(self, request: Request) -> Wish:
        """What a task asks for of each GPU that it gets a share of."""
        share = request.gpu.share
        assert share is not None, "it asks for whole GPUs"
        return Wish(share, request.gpu.count, request.user, self.compute_milli)

    def most_opened(self, resources: Resources) -> int:
        """How many GPUs can be opened to shares beside what a task takes; below 0: there is no room for that."""
        parts = self._parts()
        most = sum(gpu.id not in parts for gpu in self.gpus)
        return next((n for n in range(most, -1, -1) if self.free.covers(resources + self.to_open(n))), -1)


def _others(gpus: tuple[Gpu, ...], ids: Collection[GpuId]) -> tuple[Gpu, ...]:
    return tuple([gpu for gpu in gpus if gpu.id not in ids]) if ids else gpus
