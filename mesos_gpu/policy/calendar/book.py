"""Calendar of bookings: whether another one fits, and if not, when it would. Pure.

Each occurrence of a booking must have nodes for its whole length, as nothing is moved during it: it is laid out on
nodes beside the other bookings of that time. The nodes that it really gets are decided when it begins; a booking is
accepted if all can be laid out together.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Final

from mesos_gpu.model.bookings.booking import AHEAD_DAYS, DAY_S, BookingSpec
from mesos_gpu.model.nodes.gpu_names import models_of, no_such_model
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.model.words import counted, is_or_are
from mesos_gpu.policy.calendar.local_times import moved, shown, times

MAX_STEPS: Final = 5000  # steps of a search for a layout before it counts as impossible
_MAX_TRIED: Final = 100  # alternative times to try on each side of the requested one
#: Time before and after a request in which changes of guarantees are considered; they repeat each week.
_LOOKED_S: Final = 8 * DAY_S
_MAX_NAMED: Final = 3  # queues named in a message
_MINUTE: Final = 60
_ORDER: Final = attrgetter("begins", "ends", "booking")


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """GPUs of one model on one node.

    Attributes:
        node: Identifier of the node.
        model: Model of the GPUs.
        pool: Pool of the node.
        gpus: Number of healthy GPUs.
        cost: Cost of one GPU.
    """

    node: str
    model: str
    pool: str
    gpus: int
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """GPUs of a booking on one node."""

    node: str
    model: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Item:
    """Occurrence of a booking.

    Attributes:
        booking: Identifier of the booking.
        spec: Request of the booking.
        begins, ends: Begin and end in seconds since the epoch.
        chosen: GPUs that were chosen for it; empty if it may be anywhere.
        owner: Queue from whose guarantee it is taken; "" if from none.
    """

    booking: str
    spec: BookingSpec
    begins: int
    ends: int
    chosen: tuple[Chosen, ...] = ()
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guaranteed:
    """Guarantees that hold for a time.

    Attributes:
        free: Thousandths of cost by pool that are not guaranteed to any queue.
        owed: Thousandths of cost that are guaranteed, by queue and pool.
        until: End of that time, seconds since the epoch; infinity without an end.
    """

    free: Mapping[str, int] = field(default_factory=dict)
    owed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    until: float = inf


_NOTHING: Final = Guaranteed()


def _always_nothing(_: float) -> Guaranteed:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Ground:
    """Bookable capacity.

    Attributes:
        bins: GPUs of the cluster, by node and model.
        guaranteed: Function that returns the guarantees at a time in seconds since the epoch.
        models: Models of all GPUs of the cluster, to resolve names in requests; if empty, names are models.
    """

    bins: Sequence[NodeGpus]
    guaranteed: Callable[[float], Guaranteed] = _always_nothing
    models: frozenset[str] = frozenset()
    _costs: dict[Hashable, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def milli(self, item: Item) -> int:
        """Return the largest possible cost of an occurrence of a booking, in thousandths."""
        kind = item.chosen or (item.spec.pool, item.spec.models, item.spec.gpus_in_all)
        milli = self._costs.get(kind)
        if milli is None:
            milli = self._costs[kind] = self._milli(item)
        return milli

    def _milli(self, item: Item) -> int:
        """Compute the cost for `milli`: of the chosen GPUs, else of the dearest possible ones."""
        if item.chosen:
            costs = {(bin_.node, bin_.model): bin_.cost for bin_ in self.bins}
            return sum(costs.get((bin_.node, bin_.model), 1) * bin_.gpus * WHOLE for bin_ in item.chosen)
        able = (bin_.cost for bin_ in self.bins if _may(bin_, item.spec, self.models))
        return item.spec.gpus_in_all * max(able, default=1) * WHOLE


@dataclass(frozen=True, slots=True)
class BookingConflict:
    """Reason why occurrences of bookings do not fit, and when.

    Attributes:
        why: Reason as text.
        at: Time of the conflict, seconds since the epoch.
        is_own: Whether two occurrences of one booking overlap.
    """

    why: str
    at: int
    is_own: bool = False


def items_of(
    booking: str, spec: BookingSpec, since: float, until: float, *, owner: str = "", after: str = ""
) -> list[Item]:
    """Return the occurrences of a booking within an interval.

    Args:
        booking: Identifier of the booking.
        spec: Request of the booking.
        since: Begin of the interval; occurrences that are over by then are left out.
        until: End of the interval; occurrences that begin later are left out.
        owner: Queue from whose guarantee the booking is taken; "" if from none.
        after: ISO date; only occurrences on later days are returned.
    """
    return [
        Item(booking, spec, occurrence.begins, occurrence.ends, owner=owner)
        for occurrence in times(spec, since, until)
        if occurrence.day > after
    ]


def horizon(now: float) -> float:
    """Return the time up to which bookings are compared with each other, seconds since the epoch."""
    return now + AHEAD_DAYS * DAY_S


def clash(ground: Ground, items: Iterable[Item], only: str | None = None) -> BookingConflict | None:
    """Return why not all occurrences can be kept; None if they can.

    Args:
        ground: Bookable capacity of the cluster.
        items: Occurrences of all bookings.
        only: Identifier of a booking: only occurrences that overlap one of its own are tested; None for all.
    """
    # Groups of a form that was laid out already are not tested again: most days are alike.
    laid = set[Hashable]()
    for group in _overlapping(items, only):
        misfit = _over_itself(group) or _over_sums(ground, group)
        form = _form(group)
        if misfit is None and form not in laid:
            misfit = _over_nodes(ground, group)
            laid.add(form)
        if misfit is not None:
            return misfit
    return None


def _form(group: Sequence[Item]) -> Hashable:
    """Return a key that is equal for groups that can be laid out alike, whatever their day."""
    first = group[0].begins
    return tuple(
        [(item.booking, id(item.spec), item.begins - first, item.ends - first, item.chosen) for item in group]
    )


def laid_out(
    ground: Ground, items: Iterable[Item], only: str | None = None
) -> dict[tuple[str, int], tuple[Chosen, ...]] | None:
    """Return the GPUs of each occurrence, by booking and begin; None if no layout was found.

    Args:
        ground: Bookable capacity of the cluster.
        items: Occurrences of all bookings.
        only: Identifier of a booking: only occurrences that overlap one of its own are laid out; None for all.
    """
    places: dict[tuple[str, int], tuple[Chosen, ...]] = {}
    for group in _overlapping(items, only):
        layout = _Layout(ground, group)
        if not layout.found():
            return None
        places |= layout.places
    return places


def unknown_models(ground: Ground, spec: BookingSpec) -> str:
    """Return a message if no node of the booking's pool has GPUs of the requested models.

    "" if some have, if no model is requested, or if the pool has no GPUs at all.
    """
    models = {bin_.model for bin_ in ground.bins if bin_.pool == spec.pool}
    if not spec.models or not models or models & {*models_of(spec.models, ground.models)}:
        return ""
    return no_such_model(spec.models, models, f" of pool {spec.pool}")


def never(ground: Ground, item: Item, now: float) -> str:
    """Return why a booking would not fit at any time even if nothing else were booked; "" if it would at some time.

    Args:
        ground: Bookable capacity of the cluster.
        item: First occurrence of the booking.
        now: Seconds since the epoch.
    """
    spec = item.spec
    able = {bin_.node for bin_ in ground.bins if _may(bin_, spec, ground.models) and bin_.gpus >= spec.gpus}
    if len(able) < spec.nodes:
        of = f" {' or '.join(spec.models)}" if spec.models else ""
        need = (
            f"{counted(spec.gpus, 'healthy GPU')} of one model"
            if not spec.models
            else f"{spec.gpus} healthy{of}"
        )
        has = "no node" if not able else counted(len(able), "node")
        return f"{has} of pool {spec.pool} {'has' if len(able) < 2 else 'have'} {need}; {spec.nodes} would be needed"
    misfit = _over_sums(ground, [item])
    return "" if misfit is None or nearest(ground, (), item, now, most=1) else misfit.why


def nearest(
    ground: Ground, others: Sequence[Item], asked: Item, now: float, *, most: int = 2
) -> tuple[int, ...]:
    """Return up to `most` feasible begins before, and as many after, the requested one, seconds since the epoch.

    Args:
        ground: Bookable capacity of the cluster.
        others: Occurrences of all other bookings.
        asked: First occurrence of the requested booking.
        now: Seconds since the epoch.
        most: Largest number of begins on each side.
    """
    own = items_of(asked.booking, asked.spec, asked.begins, horizon(now), owner=asked.owner)
    borders = _borders(ground, max(now, asked.begins - _LOOKED_S), asked.ends + _LOOKED_S)
    earlier, later = _candidates(others, own, asked, now, borders)

    def fits(at: int) -> bool:
        """Return whether all occurrences fit if the first one begins at a time."""
        if not now <= at < horizon(now):
            return False
        spec = _at(asked.spec, at)
        first = items_of(asked.booking, spec, now, at + 1, owner=asked.owner)
        if [item.begins for item in first] != [at] or _over_sums(ground, first):
            return False  # a cheap test before all occurrences are compared
        occurrences = items_of(asked.booking, spec, now, horizon(now), owner=asked.owner)
        return clash(ground, [*others, *occurrences], asked.booking) is None

    return (*sorted(_first(earlier, fits, most)), *_first(later, fits, most))


def _at(spec: BookingSpec, at: int) -> BookingSpec:
    """Return the request with another first begin."""
    return replace(spec, begins=moved(spec, at))


def _first(moments: Iterable[int], fits: Callable[[int], bool], most: int) -> list[int]:
    """Return the first `most` times that fit."""
    fit: list[int] = []
    for at in moments:
        if fits(at):
            fit.append(at)
            if len(fit) == most:
                break
    return fit


def _borders(ground: Ground, since: float, until: float) -> list[int]:
    """Return the times in an interval at which guarantees change."""
    borders, at = list[int](), since
    while (at := ground.guaranteed(at).until) < until:
        borders.append(int(at))
    return borders


def _candidates(
    others: Sequence[Item], every: Sequence[Item], asked: Item, now: float, borders: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return begins before and after the requested one that are worth a test, the nearest first, in whole minutes.

    At a candidate an occurrence begins when another booking ends or ends when one begins; changes of guarantees count
    as such times, too.
    """
    shifts: set[int] = {int(now) + 1 - asked.begins}
    begins = sorted({item.begins for item in every})
    spans = {(item.begins, item.ends) for item in others} | {(at, at) for at in borders}
    for first, last in spans:
        for begin in begins[:8]:  # later occurrences repeat these
            shifts |= {last - begin, first - asked.spec.lasts_s - begin}
    moments = {asked.begins + shift for shift in shifts if shift}
    late = sorted({-(-at // _MINUTE) * _MINUTE for at in moments if at > asked.begins} - {asked.begins})
    early = sorted({at // _MINUTE * _MINUTE for at in moments if now < at < asked.begins}, reverse=True)
    return early[:_MAX_TRIED], late[:_MAX_TRIED]


def _may(bin_: NodeGpus, spec: BookingSpec, known: frozenset[str]) -> bool:
    """Return whether a booking may use the GPUs of a bin; `known` is `Ground.models`."""
    return bin_.pool == spec.pool and (not spec.models or bin_.model in models_of(spec.models, known))


def _overlapping(items: Iterable[Item], only: str | None) -> Iterator[list[Item]]:
    """Yield groups of occurrences connected by overlaps; occurrences of different groups never overlap.

    With `only`, the identifier of a booking, groups without it are left out.
    """
    for group in _groups(items):
        if only is None or any(item.booking == only for item in group):
            yield group


def _groups(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield groups of occurrences connected by overlaps, in order of begin."""
    group: list[Item] = []
    until = 0
    for item in sorted(items, key=_ORDER):
        if group and item.begins >= until:
            yield group
            group, until = [], 0
        group.append(item)
        until = max(until, item.ends)
    if group:
        yield group


def _over_itself(group: Sequence[Item]) -> BookingConflict | None:
    """Return a clash if two occurrences of one booking overlap."""
    last: dict[str, Item] = {}
    for item in group:
        before = last.get(item.booking)
        if before is not None and before.ends > item.begins:
            return BookingConflict("it overlaps its own next occurrence", item.begins, is_own=True)
        last[item.booking] = item
    return None


def _over_sums(ground: Ground, group: Sequence[Item]) -> BookingConflict | None:
    """Return a clash if more is booked at any time than is not guaranteed, or than the owning queue is guaranteed."""
    sums: dict[tuple[str, str], int] = {}  # booked cost by owner and pool at the current time
    begins, ends = iter(group), iter(sorted(group, key=attrgetter("ends")))
    first, last = next(begins, None), next(ends, None)
    for at in _moments(ground, group):
        while first is not None and first.begins <= at:
            key = first.owner, first.spec.pool
            sums[key] = sums.get(key, 0) + ground.milli(first)
            first = next(begins, None)
        while last is not None and last.ends <= at:
            sums[last.owner, last.spec.pool] -= ground.milli(last)
            last = next(ends, None)
        guaranteed = ground.guaranteed(at)
        for (owner, pool), milli in sums.items():
            limit = guaranteed.owed.get((owner, pool), 0) if owner else guaranteed.free.get(pool)
            if limit is not None and milli > limit:
                return BookingConflict(_of_sum(owner, pool, milli, limit, guaranteed.owed), at)
    return None


def _moments(ground: Ground, group: Sequence[Item]) -> list[int]:
    """Return the times at which bookings begin or guarantees change."""
    moments = {item.begins for item in group}
    at, ends = float(min(moments)), max(item.ends for item in group)
    while (at := ground.guaranteed(at).until) < ends:
        moments.add(int(at))
    return sorted(moments)


def _of_sum(owner: str, pool: str, milli: int, most: int, owed: Mapping[tuple[str, str], int]) -> str:
    """Return the message that more is booked than may be, with the queues that have guarantees."""
    of = f" of pool {pool}" if pool != DEFAULT_POOL else ""
    if owner:
        guaranteed = f"queue {owner} is guaranteed {counted(number_of(most), 'GPU')}{of}"
        return f"{guaranteed}, and {number_of(milli)} would be booked of that"
    free = number_of(most)
    reason = (
        f"{counted(free, 'GPU')}{of} {is_or_are(free)} not guaranteed, and {number_of(milli)} would be booked"
    )
    holders = _holders(pool, owed)
    own = "a queue can book part of its own guarantee with --from-guarantee"
    return f"{reason}: {holders}; {own}" if holders else reason


def _holders(pool: str, owed: Mapping[tuple[str, str], int]) -> str:
    """Return which queues are guaranteed parts of a pool, as text, without queues below them."""
    guaranteed = {path: milli for (path, of), milli in owed.items() if of == pool and milli}
    top = [path for path in guaranteed if not any(path.startswith(f"{above}/") for above in guaranteed)]
    top.sort(key=lambda path: (-guaranteed[path], path))
    named = [f"queue {path} is guaranteed {number_of(guaranteed[path])}" for path in top[:_MAX_NAMED]]
    if len(top) > _MAX_NAMED:
        named.append(f"{counted(len(top) - _MAX_NAMED, 'more queue')} the rest")
    return ", ".join(named)


def _over_nodes(ground: Ground, group: Sequence[Item]) -> BookingConflict | None:
    """Return a clash if no layout is found, at the time with the most booked GPUs."""
    if _Layout(ground, group).found():
        return None
    peak = max(
        (item.begins for item in group),
        key=lambda at: (sum(item.spec.gpus_in_all for item in group if item.begins <= at < item.ends), -at),
    )
    overlapping = {item.booking: item for item in group if item.begins <= peak < item.ends}
    gpus = sum(item.spec.gpus_in_all for item in overlapping.values())
    return BookingConflict(
        f"no nodes are left for it beside {counted(len(overlapping) - 1, 'booking')} ({gpus} GPUs in all)",
        peak,
    )


class _Layout:
    """Backtracking search for nodes for overlapping occurrences, best fit first.

    Args:
        ground: Bookable capacity of the cluster.
        group: Occurrences that overlap.
    """

    def __init__(self, ground: Ground, group: Sequence[Item]) -> None:
        self._models = ground.models
        self._bins = {(bin_.node, bin_.model): bin_ for bin_ in ground.bins}
        self._alike: dict[
            NodeGpus, list[tuple[str, str]]
        ] = {}  # keys of equal bins, by a bin without its node
        for key, bin_ in sorted(self._bins.items()):
            self._alike.setdefault(replace(bin_, node=""), []).append(key)
        #: Begin, end and GPUs of the bookings in each bin that has any.
        self._used: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        self._items = sorted(group, key=lambda i: (not i.chosen, i.begins, -i.spec.gpus_in_all, i.booking))
        self.places: dict[tuple[str, int], tuple[Chosen, ...]] = {}

    def found(self) -> bool:
        """Return whether each occurrence has nodes; then `places` has them."""
        free = [item for item in self._items if not item.chosen]
        for item in self._items:
            if item.chosen:
                self._put(item, item.chosen)
        tries: list[Iterator[tuple[Chosen, ...]]] = []
        placed = 0
        for _ in range(MAX_STEPS + 4 * len(free)):
            if placed == len(free):
                return True
            if placed == len(tries):
                tries.append(self._ways(free[placed]))
            way = next(tries[-1], None)
            if way is not None:
                self._put(free[placed], way)
                placed += 1
                continue
            tries.pop()
            if not tries:
                return False
            placed -= 1
            self._take_back(free[placed])
        return placed == len(free)

    def _put(self, item: Item, places: tuple[Chosen, ...]) -> None:
        """Record the GPUs of an occurrence."""
        self.places[item.booking, item.begins] = places
        for place in places:
            used = self._used.setdefault((place.node, place.model), [])
            insort(used, (item.begins, item.ends, place.gpus))

    def _take_back(self, item: Item) -> None:
        for place in self.places.pop((item.booking, item.begins)):
            key = place.node, place.model
            self._used[key].remove((item.begins, item.ends, place.gpus))
            if not self._used[key]:
                del self._used[key]

    def _ways(self, item: Item) -> Iterator[tuple[Chosen, ...]]:
        """Yield the possible places of an occurrence, nodes with the least to spare first; of equal nodes only one."""
        spec, able = item.spec, self._able(item)
        seen = set[object]()
        for first in range(len(able)):
            _, node, model = able[first]
            kind = model, self._bins[node, model].gpus, tuple(self._used.get((node, model), ()))
            if kind in seen:
                continue
            seen.add(kind)
            chosen: dict[str, Chosen] = {}
            for _, node, model in able[first:]:
                chosen.setdefault(node, Chosen(node, model, spec.gpus))
                if len(chosen) == spec.nodes:
                    yield tuple(chosen.values())
                    break
            else:
                return

    def _able(self, item: Item) -> list[tuple[int, str, str]]:
        """Return the bins with room for an occurrence, with what they have to spare, in that order.

        Of equal bins without bookings only as many are returned as can be needed if each chosen node has two bins.
        """
        spec, able = item.spec, list[tuple[int, str, str]]()
        for kind, keys in self._alike.items():
            if _may(kind, spec, self._models) and kind.gpus >= spec.gpus:
                empty = (key for key in keys if key not in self._used)
                able += [(kind.gpus - spec.gpus, *key) for key in islice(empty, 2 * spec.nodes)]
        for key in self._used:
            bin_ = self._bins.get(key)
            if bin_ is not None and _may(bin_, spec, self._models):
                left = bin_.gpus - self._most_used(key, item) - spec.gpus
                if left >= 0:
                    able.append((left, *key))
        return sorted(able)

    def _most_used(self, key: tuple[str, str], item: Item) -> int:
        """Return the largest number of GPUs in a bin that other occurrences use during this one."""
        overlapping = [
            booking for booking in self._used[key] if booking[0] < item.ends and booking[1] > item.begins
        ]
        if not overlapping:
            return 0
        moments = {max(begins, item.begins) for begins, _, _ in overlapping}
        return max(sum(n for b, e, n in overlapping if b <= at < e) for at in moments)


def refusal(misfit: BookingConflict, zone: str, moments: Sequence[int]) -> tuple[str, str]:
    """Return why a booking is refused, and what would fit instead, as two texts.

    Args:
        misfit: Conflict with other bookings or guarantees.
        zone: Time zone in which times are shown.
        moments: Begins at which the booking would fit.
    """
    problem = f"at {shown(misfit.at, zone)} {misfit.why}"
    if not moments:
        return (
            problem,
            f"book fewer GPUs, or for a shorter time: no other begin within {AHEAD_DAYS} days was found",
        )
    return problem, f"it would fit from {', or '.join(shown(at, zone) for at in moments)} on ({zone})"
