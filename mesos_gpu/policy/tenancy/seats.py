"""Seats of jobs: their places within the guarantee of a queue. Pure, whole numbers only.

A job has a seat if it would run were its queue alone on the nodes of its guarantee: seats are given in the queue's own
order, to running borrowers and waiting jobs alike, to all tasks of a job or to none. A job with a seat is not preempted
for other queues; a job without one borrows.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heapreplace, merge
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.policy.tenancy.cells import Cells
from mesos_gpu.policy.tenancy.tree import lineage


@dataclass(frozen=True, slots=True)
class Ask:
    """Job without a seat (a place in its queue's guarantee) that may get one: it waits, or it runs and borrows.

    Attributes:
        job_id: Identifier of the job.
        wants: Pools with the amount that each task takes of a cell, thousandths of cost; the preferred pool first.
        tasks: Number of tasks.
        rank: Order in its queue; the lowest goes first.
        starving: Whether free cells are reserved for it when it gets no seat, so that smaller jobs cannot take them
            again and again.
    """

    job_id: JobId
    wants: tuple[tuple[str, int], ...]
    tasks: int = 1
    rank: tuple[int, ...] = ()
    starving: bool = False

    @property
    def kind(self) -> Hashable:
        """Key shared by jobs that fit into the same cells."""
        return self.wants, self.tasks


class Room:
    """Free part of each cell (a node's part of a guarantee), by queue and pool.

    Args:
        cells: Sizes of all cells; all are free at first.
    """

    def __init__(self, cells: Cells) -> None:
        self._sizes = cells
        self._free = {key: list(sizes) for key, sizes in cells.items()}
        self._by_queue: dict[str, list[str]] = {}
        for path, pool in sorted(cells):
            self._by_queue.setdefault(path, []).append(pool)

    def pools(self, path: str) -> Sequence[str]:
        """Return the names of the pools in which a queue has cells."""
        return self._by_queue.get(path, ())

    def is_full(self, path: str) -> bool:
        """Return whether all cells of a queue's guarantee are used up."""
        return all(max(self._free[path, pool]) <= 0 for pool in self.pools(path))

    def left(self, path: str) -> int:
        """Return the free part of a queue's guarantee: the sum over its cells in all pools, in thousandths of cost."""
        return sum(max(free, 0) for pool in self.pools(path) for free in self._free[path, pool])

    def free(self, path: str, pool: str) -> tuple[int, ...]:
        """Return the free amount of each cell of a queue in a pool."""
        return tuple(self._free.get((path, pool), ()))

    def find(self, path: str, ask: Ask) -> tuple[str, tuple[int, ...], int] | None:
        """Find room for all tasks of a job in a queue's cells.

        Returns:
            Pool, cell index for each task, and the amount that each task takes; None if there is no room.
        """
        for pool, milli in ask.wants:
            cells = self._places(path, pool, milli, ask.tasks)
            if cells is not None:
                return pool, cells, milli
        return None

    def take(self, seat: GuaranteedAdmission) -> bool:
        """Subtract a job's seat from the cells that it occupies.

        Returns:
            False, with nothing changed, if a cell does not exist or has too little free.
        """
        free = self._free.get((seat.queue, seat.pool), [])
        for done, cell in enumerate(seat.cells):
            if cell >= len(free) or free[cell] < seat.milli:
                for other in seat.cells[:done]:
                    free[other] += seat.milli
                return False
            free[cell] -= seat.milli
        return True

    def give_back(self, seat: GuaranteedAdmission) -> None:
        """Return a job's seat to the cells that it occupied."""
        for cell in seat.cells:
            self._free[seat.queue, seat.pool][cell] += seat.milli

    def keep(self, path: str, ask: Ask) -> None:
        """Reserve cells for a job that got no seat: the large enough ones with most free."""
        for pool, milli in ask.wants:
            sizes, free = self._sizes.get((path, pool), ()), list(self._free.get((path, pool), ()))
            room, chosen = list(sizes), list[int]()
            for _ in range(ask.tasks):
                able = [i for i, size in enumerate(room) if size >= milli]
                if not able:
                    break
                chosen.append(max(able, key=lambda i: (free[i], -i)))
                room[chosen[-1]] -= milli
                free[chosen[-1]] -= milli
            if len(chosen) == ask.tasks:
                self._free[path, pool] = free
                return

    def _places(self, path: str, pool: str, milli: int, tasks: int) -> tuple[int, ...] | None:
        """Choose a cell for each task: the fullest with room, and for a gang as few cells as possible."""
        free = self._free.get((path, pool))
        if free is None:
            return None
        if tasks == 1:
            cell = min(
                (i for i, left in enumerate(free) if left >= milli), key=lambda i: (free[i], i), default=None
            )
            return None if cell is None else (cell,)
        if sum(left // milli for left in free if left > 0) < tasks:
            return None
        cells: list[int] = []
        # Cells for most tasks first, then those with the least left over: few cells are left broken.
        for i in sorted(range(len(free)), key=lambda i: (-(free[i] // milli), free[i], i)):
            cells += [i] * min(max(free[i] // milli, 0), tasks - len(cells))
        return tuple(cells)


@dataclass(frozen=True, slots=True)
class Held:
    """Running job with a seat: a place in the guarantee of its queue or of an ancestor.

    Attributes:
        leaf: Queue of the job.
        seat: Seat as it was saved.
        ask: Amounts that the job takes now.
    """

    leaf: str
    seat: GuaranteedAdmission
    ask: Ask


def kept(cells: Cells, held: Iterable[Held]) -> tuple[Room, dict[JobId, GuaranteedAdmission | None]]:
    """Subtract the seats of running jobs from the free cells, and move or drop those that do not fit any more.

    Where a new document has fewer or other cells, the oldest seats are kept, in other cells if necessary, and the
    newest jobs become borrowers. A job that takes more than before gets another seat, or none, if its cells have no
    room.

    Returns:
        Free cells, and the changed seats by job; None for a job that lost its seat.
    """
    ordered = sorted(held, key=lambda job: (job.seat.since, job.ask.rank, job.ask.job_id))
    room = Room(cells)
    if all(_is_valid(job) and room.take(job.seat) for job in ordered):
        return room, _resized(room, ordered)
    room, changed = Room(cells), dict[JobId, GuaranteedAdmission | None]()
    for job in ordered:
        seat = _as_now(job)
        if seat is None or not room.take(seat):
            seat = seat_in(room, job.leaf, job.ask, job.seat.since)
        if seat != job.seat:
            changed[job.ask.job_id] = seat
    return room, changed


def _resized(room: Room, held: Iterable[Held]) -> dict[JobId, GuaranteedAdmission | None]:
    """Return the changed seats of jobs whose tasks take more or less than before."""
    changed: dict[JobId, GuaranteedAdmission | None] = {}
    for job in held:
        seat = _as_now(job)
        if seat == job.seat:
            continue
        room.give_back(job.seat)
        if seat is None or not room.take(seat):
            seat = seat_in(room, job.leaf, job.ask, job.seat.since)
        changed[job.ask.job_id] = seat
    return changed


def _is_valid(held: Held) -> bool:
    """Return whether the seat that a job had is still valid.

    It is if its queue is the job's or one above it, and if it has a cell for each task of the job.
    """
    return held.seat.queue in lineage(held.leaf) and len(held.seat.cells) == held.ask.tasks


def _as_now(held: Held) -> GuaranteedAdmission | None:
    """Return the seat with the amount that the job takes now; None if the job has left its queue or pool."""
    seat = held.seat
    milli = next((milli for pool, milli in held.ask.wants if pool == seat.pool), None)
    if milli is None or seat.queue not in lineage(held.leaf):
        return None
    return seat if milli == seat.milli else replace(seat, milli=milli)


def seat_in(room: Room, leaf: str, ask: Ask, since: float) -> GuaranteedAdmission | None:
    """Give a job a seat in the guarantee of its leaf, or of the nearest ancestor with room; return None without room.

    Args:
        room: Free cells of guarantees; those of the seat are subtracted.
        leaf: Queue of the job.
        ask: Amounts that the job needs.
        since: Time at which the job got its first seat, seconds since the epoch.
    """
    return next(filter(None, (_take(room, path, ask, since) for path in lineage(leaf))), None)


def _take(room: Room, path: str, ask: Ask, since: float) -> GuaranteedAdmission | None:
    """Give a job a seat in the guarantee of one queue; return None if it has no room."""
    places = room.find(path, ask)
    if places is None:
        return None
    pool, cells, milli = places
    seat = GuaranteedAdmission(path, pool, cells, milli, since)
    taken = room.take(seat)
    assert taken, f"no room for {seat}, although cells were found"
    return seat


def give(
    room: Room,
    lines: Mapping[str, Iterable[Ask]],
    weights: Mapping[str, int],
    now: float,
    taken: Iterable[Held] = (),
) -> dict[JobId, GuaranteedAdmission]:
    """Give free cells of guarantees to jobs that have no seat.

    Args:
        room: Free cells; those given are subtracted.
        lines: Jobs without a seat, by leaf, in their order: running borrowers and waiting jobs.
        weights: Weights by queue, for dividing the cells of its parent among siblings; 1 for queues not named.
        now: Seconds since the epoch.
        taken: Jobs that have a seat, counted when the children of a queue take turns at its own cells.

    Returns:
        New seats, by job.
    """
    given: dict[JobId, GuaranteedAdmission] = {}
    for leaf in sorted(lines):
        if not room.is_full(leaf):
            _serve(room, leaf, lines[leaf], now, given)
    above = {path for leaf in lines for path in lineage(leaf)[1:] if not room.is_full(path)}
    if above:
        seated = list(taken)
        for path in sorted(above, key=lambda path: (-path.count("/"), path)):
            _Surplus(room, path, lines, weights, now, given, seated).share_out()
    return given


def _serve(
    room: Room, path: str, line: Iterable[Ask], now: float, given: dict[JobId, GuaranteedAdmission]
) -> None:
    """Give seats in a queue's own cells to jobs in their order, and reserve cells for starving jobs without room."""
    refused: set[Hashable] = set()
    for ask in line:
        if ask.kind in refused and not ask.starving:
            continue
        seat = _take(room, path, ask, now)
        if seat is not None:
            given[ask.job_id] = seat
            if room.is_full(path):
                return
            continue
        refused.add(ask.kind)
        if ask.starving:
            room.keep(path, ask)


class _Surplus:
    """Cells that a queue is guaranteed beyond its children's, given in turns to jobs below it that have no seat.

    Args:
        room: Free cells; those given are subtracted.
        path: Path of the queue.
        lines: Jobs without a seat, by leaf, in their order.
        weights: Weights of the children; 1 for those not named.
        now: Seconds since the epoch.
        given: Seats given so far; new ones are added.
        held: Running jobs with seats.
    """

    def __init__(
        self,
        room: Room,
        path: str,
        lines: Mapping[str, Iterable[Ask]],
        weights: Mapping[str, int],
        now: float,
        given: dict[JobId, GuaranteedAdmission],
        held: Iterable[Held],
    ) -> None:
        self._room, self._path, self._now, self._given, self._weights = room, path, now, given, weights
        self._lines: dict[str, list[Iterator[Ask]]] = {}
        for leaf in sorted(lines):
            if leaf.startswith(path + "/"):
                left = (ask for ask in lines[leaf] if ask.job_id not in given)
                self._lines.setdefault(self._child(leaf), []).append(left)
        self._held = dict.fromkeys(self._lines, 0)
        for job in held:
            if job.seat.queue == path:
                child = self._child(job.leaf)
                self._held[child] = self._held.get(child, 0) + job.seat.milli * len(job.seat.cells)

    def _child(self, leaf: str) -> str:
        """Return the child of the queue that contains a leaf."""
        rest = leaf[len(self._path) + 1 :]
        return f"{self._path}/{rest.partition('/')[0]}"

    def share_out(self) -> None:
        """Give seats one by one, each to the child queue that holds least for its weight."""
        refused: set[Hashable] = set()
        merged = {child: merge(*lines, key=lambda ask: ask.rank) for child, lines in self._lines.items()}
        heap = [(self._part(child), child) for child in merged]
        heapify(heap)
        while heap and not self._room.is_full(self._path):
            child = heap[0][1]
            served = next(
                (self._serve(ask, child, refused) for ask in merged[child] if self._wants(ask, refused)), None
            )
            if served is None:
                heappop(heap)
            else:
                heapreplace(heap, (self._part(child), child))

    def _part(self, child: str) -> Fraction:
        """Return what a child holds of the queue's own cells (cost, by its weight); a child of weight 0 comes last."""
        weight = self._weights.get(child, 1)
        return Fraction(self._held[child], weight) if weight else Fraction(_LAST)

    def _wants(self, ask: Ask, refused: set[Hashable]) -> bool:
        """Return whether a job is worth a try: it starves, or no equal job was refused before."""
        return ask.starving or ask.kind not in refused

    def _serve(self, ask: Ask, child: str, refused: set[Hashable]) -> bool:
        """Give a job a seat in the queue's own cells; return whether there was room."""
        seat = _take(self._room, self._path, ask, self._now)
        if seat is not None:
            self._given[ask.job_id] = seat
            self._held[child] += seat.milli * len(seat.cells)
            return True
        refused.add(ask.kind)
        if ask.starving:
            self._room.keep(self._path, ask)
        return False


_LAST: Final = 1 << 80
