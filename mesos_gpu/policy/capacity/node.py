"""Capacity of a node: what is free, what tasks hold, and what is reserved for jobs."""

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
OF_POOL: Final = "is in pool "  # start of a reason: the name of a pool follows that the job may not use
OFF_GPUS: Final = "has GPUs, and jobs without GPUs are kept off such nodes"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Resources that a task holds on its node until it ends. Times are seconds since the epoch."""

    job_id: JobId | None  # None for a node monitor
    resources: Resources
    gpus: tuple[Gpu, ...] = ()  # GPUs that another job can use after the end
    since: float = 0.0
    ends_at: float = ENDLESS
    lasts_s: float | None = None  # run time behind `ends_at`; None if unknown, or if the task is being ended
    learnt: str = ""  # source of `lasts_s` as text; "" if it is the job's time limit
    share: Share | None = None  # share of each of `gpus`; None for whole GPUs
    counted_milli: int = 0  # amount that limits count, in thousandths of cost, in any health
    ports: tuple[PortRange, ...] = ()  # ranges of one port each


def by_end(allocations: Iterable[Allocation]) -> list[Allocation]:
    """Sort allocations by end; those with an unknown end come last, with GPUs first, then the oldest."""
    return sorted(
        allocations,
        key=lambda allocation: (
            allocation.ends_at,
            not allocation.gpus,
            allocation.since,
            str(allocation.job_id),
        ),
    )


@dataclass(frozen=True, slots=True)
class Spare:
    """Part of a queue's limit that others may use beside a waiting job.

    Attributes:
        queue: Queue with the limit: the job's, or an ancestor.
        pool: Pool to which the limit applies.
        milli: Thousandths of cost that other jobs below the queue may hold when the job starts.
    """

    queue: str
    pool: str
    milli: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity that is reserved for a job until it starts, or for a booking."""

    job_id: JobId
    queue: str
    resources: Resources  # total of its tasks on the node
    at: float  # latest expected start, seconds since the epoch; ENDLESS if unknown
    agent_id: AgentId | None = None  # None if only a part of its queue's limit is reserved, and no node
    hostname: str = ""
    gpus: frozenset[GpuId] = frozenset()  # whole GPUs
    spare: Resources = NOTHING  # what others may hold of the node then, besides all GPUs but `gpus`
    spares: tuple[Spare, ...] = ()  # for each limit that applies to it, its own queue's first
    awaited: tuple[Allocation, ...] = ()  # allocations that must end before it starts, by time of end
    shares: tuple[tuple[GpuId, Share], ...] = ()  # reserved shares of GPUs that are open to shares
    beside: tuple[GpuPart, ...] = ()  # parts of those GPUs that others may hold at that time
    booking: str = ""  # identifier of the booking that it serves instead of a job; "" for a job
    is_given_up: bool = False  # whether it keeps room of ended tasks for their gang to start again
    words: str = ""  # times of a booking, as "booked from Tue 2026-12-01 09:00 to …"; "" for a job

    @property
    def kept(self) -> Resources:
        """Reserved amounts without GPUs, which are reserved one by one."""
        return self.resources.with_gpus(0)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Node as a job can use it: what is free now, or after some allocations have ended."""

    agent_id: AgentId
    hostname: str
    free: Resources = NOTHING  # offered amounts; Mesos gives only the number of GPUs
    gpus: tuple[Gpu, ...] = ()  # healthy GPUs that are free, wholly or in part
    parts: tuple[GpuPart, ...] = ()  # free parts of GPUs that are open to shares
    compute_milli: int = WHOLE  # thousandths of a GPU's compute that all its shares together may have at most
    cover: Resources = _ONE_GPU  # part of `free` that opening each GPU to shares takes
    keeper: Resources = NOTHING  # part of `free` for the keeper task at the first opening; NOTHING if it runs
    ports: tuple[PortRange, ...] | None = None  # free ports; None if ports are not counted
    allocations: tuple[Allocation, ...] = ()  # what tasks hold, in the order of `by_end`
    given_back: Resources = NOTHING  # what comes back when all allocations have ended and GPUs are closed
    installed: tuple[Gpu, ...] = ()  # all GPUs of the node, in any health
    driver: str | None = None  # version of the GPU driver; None without one, or if unknown
    # Other obstacles, as text; "" if they do not apply.
    offered: bool = True  # whether an offer of the node is held; otherwise its free amounts are unknown
    holders: Mapping[GpuId, str] = field(default_factory=dict)  # description of the holder of each held GPU
    lost: str = ""  # since when the node is lost
    silent: str = ""  # why the node's GPUs are unknown
    drained: str = ""  # why nothing at all may start on the node
    barred: str = ""  # constraint that excludes the node while other tasks run where they do
    ruled_out: str = ""  # constraint that excludes the node in any case
    paced: str = ""  # reason why the node gets no further launch for now; "" if it may get launches
    kept: tuple[Reservation, ...] = ()  # reservations for others that the job must respect

    def minus(
        self, resources: Resources, gpu_ids: Collection[GpuId] = (), share: Share | None = None
    ) -> "NodeCapacity":
        """Return the node after a launch.

        Args:
            resources: Amounts that the launch takes.
            gpu_ids: GPUs that it takes, wholly or in shares; those not open to shares yet are opened for a share.
            share: Share of each GPU; None for whole GPUs.
        """
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
        """Return the part of `free` that opening `count` GPUs to shares takes."""
        return self.cover.scaled(count) + self.keeper if count else NOTHING

    def without(self, ended: Collection[Allocation]) -> "NodeCapacity":
        """Return the node after allocations have ended; a GPU whose last share ends becomes a whole one again."""
        if not ended:
            return self.closed() if self.parts else self
        back = total(allocation.resources for allocation in ended)
        gone = {id(allocation) for allocation in ended}
        parts = (
            self._given_back([allocation for allocation in ended if allocation.share]) if self.parts else ()
        )
        node = replace(
            self,
            free=self.free + back,
            gpus=(
                *self.gpus,
                *(gpu for allocation in ended if allocation.share is None for gpu in allocation.gpus),
            ),
            parts=parts,
            ports=None
            if self.ports is None
            else (*self.ports, *(port for allocation in ended for port in allocation.ports)),
            allocations=tuple(allocation for allocation in self.allocations if id(allocation) not in gone),
            given_back=self.given_back - back,
        )
        return node.closed() if parts else node

    def _given_back(self, ended: Iterable[Allocation]) -> tuple[GpuPart, ...]:
        """Return the free parts of GPUs after the shares of ended allocations are given back."""
        parts = self._parts()
        for allocation in ended:
            for gpu in allocation.gpus:
                if allocation.share is not None and gpu.id in parts:
                    empty = unshared(gpu, self.compute_milli)
                    parts[gpu.id] = parts[gpu.id].more(allocation.share, empty)
        return tuple(parts.values())

    def _covers(self, count: int) -> Resources:
        """Return the resources that come back when `count` GPUs are closed to shares."""
        return self.cover.with_gpus(1).scaled(count)

    def closed(self, only: Collection[GpuId] | None = None) -> "NodeCapacity":
        """Return the node with its open GPUs that have no share closed again, last among the free ones.

        Args:
            only: GPUs that may be closed; None for all.
        """
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
        """Return the node with the allocations that hold its resources."""
        ordered = tuple(by_end(allocations))
        back = total(allocation.resources for allocation in ordered) + self._covers(len(self.parts))
        return replace(self, allocations=ordered, given_back=back)

    def keeping(self, reservations: Iterable[Reservation]) -> "NodeCapacity":
        """Return the node without the capacity that reservations reserve."""
        own = [reservation for reservation in reservations if reservation.agent_id == self.agent_id]
        if not own:
            return self
        ids = frozenset[GpuId]().union(*(reservation.gpus for reservation in own))
        node = self._less(self.free - total(reservation.kept for reservation in own), ids)
        for gpu_id, share in (reserved for reservation in own for reserved in reservation.shares):
            parts = [part.less(share) if part.gpu_id == gpu_id else part for part in node.parts]
            node = replace(node, parts=tuple(parts))
        return node

    def beside(self, reservation: Reservation) -> "NodeCapacity":
        """Return the part of the node that a launch may use that outlasts a reservation.

        That is only what the reservation leaves to spare at its time.
        """
        gpus = self.free.gpus
        if not reservation.resources.gpus:  # GPUs reserved for opening come out of the offered number
            gpus -= sum(gpu.id in reservation.gpus for gpu in self.gpus)
        node = self._less(self.free.least(reservation.spare.with_gpus(gpus)), reservation.gpus)
        if not reservation.beside:
            return node
        spare = {part.gpu_id: part for part in reservation.beside}
        parts = [p.least(spare[p.gpu_id]) if p.gpu_id in spare else p for p in node.parts]
        return replace(node, parts=tuple(parts))

    def _less(self, free: Resources, kept: Collection[GpuId]) -> "NodeCapacity":
        """Return the node with other free amounts, and without reserved GPUs, also in its allocations."""
        allocations = self.allocations
        if kept and any(gpu.id in kept for allocation in allocations for gpu in allocation.gpus):
            allocations = tuple(
                replace(allocation, gpus=_others(allocation.gpus, kept)) for allocation in allocations
            )
        return replace(self, free=free, gpus=_others(self.gpus, kept), allocations=allocations)

    @property
    def models(self) -> list[str]:
        """Models of all GPUs of the node, each once, sorted."""
        return sorted({gpu.model for gpu in self.installed or self.gpus})

    def usable(self, request: GpuRequest, model: str | None = None) -> list[list[Gpu]]:
        """Return wholly free GPUs that a request accepts, grouped by model; `model` restricts them to one."""
        gpus = _others(self.gpus, {part.gpu_id for part in self.parts}) if self.parts else self.gpus
        return request.by_model(gpus, model)

    def cards(
        self, request: Request, model: str | None = None, *, even_full: bool = False
    ) -> list[list[Card]]:
        """Return the GPUs on which a task could get its share, in groups from which it may take several.

        Args:
            request: Requirements of the task, with a share.
            model: GPU model to use; None for any model that the request accepts.
            even_full: Whether to consider all GPUs as if no task held any.
        """
        gpus, parts = (self.installed, {}) if even_full else (self.gpus, self._parts())
        return cards_of(self.wish(request), request.gpu.by_model(gpus, model), parts, even_full=even_full)

    def could_share(self, request: Request) -> bool:
        """Return whether GPUs of one model could give the requested shares if no task held any; true for whole GPUs."""
        groups = request.gpu.by_model(self.installed) if request.gpu.share else ()
        return not request.gpu.share or any(could(self.wish(request), group) for group in groups)

    def refusal(self, request: Request, gpu: Gpu, *, even_full: bool = False) -> str:
        """Return why a task gets no share of a GPU, as a predicate about the GPU; "" if it gets one.

        Args:
            request: Requirements of the task, with a share.
            gpu: GPU of this node.
            even_full: Whether to ignore the shares that are on the GPU now.
        """
        wish, part = self.wish(request), None if even_full else self._parts().get(gpu.id)
        share = choose(wish.request, gpu, part, wish.user, cards=wish.count, compute_milli=wish.compute_milli)
        return share if isinstance(share, str) else ""

    def _parts(self) -> dict[GpuId, GpuPart]:
        """Return the free parts of open GPUs by their identifier."""
        return {part.gpu_id: part for part in self.parts}

    def wish(self, request: Request) -> Wish:
        """Return the shares that a task requests on this node."""
        share = request.gpu.share
        assert share is not None, "the request is for whole GPUs"
        return Wish(share, request.gpu.count, request.user, self.compute_milli)

    def most_opened(self, resources: Resources) -> int:
        """Return how many GPUs can be opened to shares beside a task's resources; -1 if these have no room."""
        parts = self._parts()
        most = sum(gpu.id not in parts for gpu in self.gpus)
        return next((n for n in range(most, -1, -1) if self.free.covers(resources + self.to_open(n))), -1)


def _others(gpus: tuple[Gpu, ...], ids: Collection[GpuId]) -> tuple[Gpu, ...]:
    """Return the GPUs without those of some identifiers."""
    return tuple([gpu for gpu in gpus if gpu.id not in ids]) if ids else gpus
