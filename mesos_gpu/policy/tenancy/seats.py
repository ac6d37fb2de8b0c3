"""Who of a queue's jobs has a seat: a part of what the queue is guaranteed. Pure, whole numbers only.

A job has a seat if it would run were its queue alone on the nodes of its guarantee: seats are given in the queue's own
order, to running borrowers and waiting jobs alike, all tasks of a job or none. Who has a seat is stopped for nobody
outside of its queue; who has none borrows.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heapreplace, merge
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.seat import Seat
from mesos_gpu.policy.tenancy.cells import Cells
from mesos_gpu.policy.tenancy.tree import lineage


@dataclass(frozen=True, slots=True)
class Ask:
    """A job that may have a seat: one that waits, or one that runs and borrows.

    Attributes:
        job_id: Of it.
        wants: What each of its tasks takes of a cell, thousandths of cost, by pool; the first choice first.
        tasks: How many it has.
        rank: Where it stands in its queue; the lowest is first.
        starving: Whether cells are kept for it when it has no seat: else smaller jobs might take them for ever.
    """

    job_id: JobId
    wants: tuple[tuple[str, int], ...]
    tasks: int = 1
    rank: tuple[int, ...] = ()
    starving: bool = False

    @property
    def kind(self) -> Hashable:
        """What jobs have in common that have places in the same cells."""
        return self.wants, self.tasks


class Room:
    """What of each cell is free."""

    def __init__(self, cells: Cells) -> None:
        """Nothing is taken yet."""
        self._sizes = cells
        self._free = {key: list(sizes) for key, sizes in cells.items()}
        self._by_queue: dict[str, list[str]] = {}
        for path, pool in sorted(cells):
            self._by_queue.setdefault(path, []).append(pool)

    def pools(self, path: str) -> Sequence[str]:
        """Names of the pools in which a queue has cells."""
        return self._by_queue.get(path, ())

    def is_full(self, path: str) -> bool:
        """Whether nothing is free in any cell of a queue."""
        return all(max(self._free[path, pool]) <= 0 for pool in self.pools(path))

    def left(self, path: str) -> int:
        """All that is free in the cells of a queue, of all pools."""
        return sum(max(free, 0) for pool in self.pools(path) for free in self._free[path, pool])

    def free(self, path: str, pool: str) -> tuple[int, ...]:
        """What is free of each cell."""
        return tuple(self._free.get((path, pool), ()))

    def find(self, path: str, ask: Ask) -> tuple[str, tuple[int, ...], int] | None:
        """A pool, a cell for each task and what each takes of it; None: there is no room in the queue's cells."""
        for pool, milli in ask.wants:
            cells = self._places(path, pool, milli, ask.tasks)
            if cells is not None:
                return pool, cells, milli
        return None

    def take(self, seat: Seat) -> bool:
        """Count a seat in; False: its cells are not there, or have no room for it, and nothing is taken."""
        free = self._free.get((seat.queue, seat.pool), [])
        for done, cell in enumerate(seat.cells):
            if cell >= len(free) or free[cell] < seat.milli:
                for other in seat.cells[:done]:
                    free[other] += seat.milli
                return False
            free[cell] -= seat.milli
        return True

    def give_back(self, seat: Seat) -> None:
        """Count a seat out that was counted in."""
        for cell in seat.cells:
            self._free[seat.queue, seat.pool][cell] += seat.milli

    def keep(self, path: str, ask: Ask) -> None:
        """Keep for a job without a seat the cells that come nearest to having room for it, if they are large enough."""
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
        """For each task the fullest cell that has room for it; a gang's tasks are where most of them are together."""
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
        # Least to spare beside whole tasks first: as few cells as can be are broken.
        for i in sorted(range(len(free)), key=lambda i: (-(free[i] // milli), free[i], i)):
            cells += [i] * min(max(free[i] // milli, 0), tasks - len(cells))
        return tuple(cells)


@dataclass(frozen=True, slots=True)
class Held:
    """A running job with a seat.

    Attributes:
        leaf: Its queue.
        seat: As it was saved.
        ask: What it takes now.
    """

    leaf: str
    seat: Seat
    ask: Ask


def kept(cells: Cells, held: Iterable[Held]) -> tuple[Room, dict[JobId, Seat | None]]:
    """Count the seats of running jobs in.

    Where a new document has fewer or other cells the oldest seats are kept, in other cells if need be, and the newest
    become borrowers. A job that takes more than it did has another seat if its cells have no more, or none.

    Returns:
        What is free, and the seats that are others now; None: the job has none any more.
    """
    ordered = sorted(held, key=lambda each: (each.seat.since, each.ask.rank, each.ask.job_id))
    room = Room(cells)
    if all(_is_its(each) and room.take(each.seat) for each in ordered):
        return room, _resized(room, ordered)
    room, changed = Room(cells), dict[JobId, Seat | None]()
    for each in ordered:
        now = _as_now(each)
        if now is None or not room.take(now):
            now = seat_in(room, each.leaf, each.ask, each.seat.since)
        if now != each.seat:
            changed[each.ask.job_id] = now
    return room, changed


def _resized(room: Room, held: Iterable[Held]) -> dict[JobId, Seat | None]:
    """The seats of jobs that take more or less than they did, where all have theirs."""
    changed: dict[JobId, Seat | None] = {}
    for each in held:
        now = _as_now(each)
        if now == each.seat:
            continue
        room.give_back(each.seat)
        if now is None or not room.take(now):
            now = seat_in(room, each.leaf, each.ask, each.seat.since)
        changed[each.ask.job_id] = now
    return changed


def _is_its(held: Held) -> bool:
    return held.seat.queue in lineage(held.leaf) and len(held.seat.cells) == held.ask.tasks


def _as_now(held: Held) -> Seat | None:
    """The seat with what the job takes now; None: it is of no queue that the job is in, or of no pool of it."""
    seat = held.seat
    milli = next((milli for pool, milli in held.ask.wants if pool == seat.pool), None)
    if milli is None or seat.queue not in lineage(held.leaf):
        return None
    return seat if milli == seat.milli else replace(seat, milli=milli)


def seat_in(room: Room, leaf: str, ask: Ask, since: float) -> Seat | None:
    """Take a seat in the leaf's cells, else in those of the nearest queue above that has room; None: there is none."""
    return next(filter(None, (_take(room, path, ask, since) for path in lineage(leaf))), None)


def _take(room: Room, path: str, ask: Ask, since: float) -> Seat | None:
    places = room.find(path, ask)
    if places is None:
        return None
    pool, cells, milli = places
    seat = Seat(path, pool, cells, milli, since)
    taken = room.take(seat)
    assert taken, f"{seat} has no room where there was some"
    return seat


def give(
    room: Room,
    lines: Mapping[str, Iterable[Ask]],
    weights: Mapping[str, int],
    now: float,
    taken: Iterable[Held] = (),
) -> dict[JobId, Seat]:
    """Give free cells to jobs that have no seat.

    Args:
        room: What is free; what is given is taken of it.
        lines: By leaf, its jobs without a seat, in their order: those that run and borrow, and those that wait.
        weights: By queue, its part of the cells of the queue above it beside its siblings; 1 where it is not named.
        now: Seconds since the epoch.
        taken: Who has a seat: of the cells of a queue above, those below it get theirs in turn.

    Returns:
        The seats of those that get one.
    """
    given: dict[JobId, Seat] = {}
    for leaf in sorted(lines):
        if not room.is_full(leaf):
            _serve(room, leaf, lines[leaf], now, given)
    above = {path for leaf in lines for path in lineage(leaf)[1:] if not room.is_full(path)}
    if above:
        held = list(taken)
        for path in sorted(above, key=lambda path: (-path.count("/"), path)):
            _Surplus(room, path, lines, weights, now, given, held).share_out()
    return given


def _serve(room: Room, path: str, line: Iterable[Ask], now: float, given: dict[JobId, Seat]) -> None:
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
    """What a queue is guaranteed beyond those below it, given to their jobs that have no seat."""

    def __init__(
        self,
        room: Room,
        path: str,
        lines: Mapping[str, Iterable[Ask]],
        weights: Mapping[str, int],
        now: float,
        given: dict[JobId, Seat],
        held: Iterable[Held],
    ) -> None:
        self._room, self._path, self._now, self._given, self._weights = room, path, now, given, weights
        self._lines: dict[str, list[Iterator[Ask]]] = {}
        for leaf in sorted(lines):
            if leaf.startswith(path + "/"):
                left = (ask for ask in lines[leaf] if ask.job_id not in given)
                self._lines.setdefault(self._child(leaf), []).append(left)
        self._held = dict.fromkeys(self._lines, 0)
        for each in held:
            if each.seat.queue == path:
                child = self._child(each.leaf)
                self._held[child] = self._held.get(child, 0) + each.seat.milli * len(each.seat.cells)

    def _child(self, leaf: str) -> str:
        rest = leaf[len(self._path) + 1 :]
        return f"{self._path}/{rest.partition('/')[0]}"

    def share_out(self) -> None:
        """The child with the smallest part of it has the next seat."""
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
        weight = self._weights.get(child, 1)
        return Fraction(self._held[child], weight) if weight else Fraction(_LAST)

    def _wants(self, ask: Ask, refused: set[Hashable]) -> bool:
        """Whether it is to be looked at: what one of its kind was refused, it is refused."""
        return ask.starving or ask.kind not in refused

    def _serve(self, ask: Ask, child: str, refused: set[Hashable]) -> bool:
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
