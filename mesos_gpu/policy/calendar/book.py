"""The book of what is booked: whether more fits, and if not when it would. Pure.

Each time of each booking must have nodes for all of its length, as nothing is moved while it lasts: nodes are laid out
for it beside those that others have then. Which ones it really gets is decided when it begins; that there is a way to
lay all of them out is what makes a booking one that can be kept.
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

MAX_STEPS: Final = 5000  # tries to lay out what overlaps, until it counts as not to be done
_MAX_TRIED: Final = 100  # other times, on each side of the one that was asked for
_LOOKED_S: Final = (
    8 * DAY_S
)  # before and after what was asked for, at the hours of guarantees: weeks are alike
_MAX_NAMED: Final = 3  # queues
_MINUTE: Final = 60
_ORDER: Final = attrgetter("begins", "ends", "booking")


@dataclass(frozen=True, slots=True)
class Bin:
    """GPUs of one model on one node.

    Attributes:
        node: Its id.
        model: Of the GPUs.
        pool: That the node is in.
        gpus: How many there are that are sound.
        cost: What one costs.
    """

    node: str
    model: str
    pool: str
    gpus: int
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """GPUs that a booking has on one node."""

    node: str
    model: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Item:
    """A time of a booking.

    Attributes:
        booking: Its id.
        spec: What is booked.
        begins, ends: Seconds since the epoch.
        chosen: Where it is, if that is decided; else it may be anywhere.
        owner: The queue whose guarantee it is taken out of; "": of none.
    """

    booking: str
    spec: BookingSpec
    begins: int
    ends: int
    chosen: tuple[Chosen, ...] = ()
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Guaranteed:
    """What is guaranteed in a time.

    Attributes:
        free: By pool, thousandths of cost that nobody is guaranteed.
        owed: By queue and pool, thousandths of cost that it is guaranteed.
        until: The end of that time, seconds since the epoch; infinity: it has none.
    """

    free: Mapping[str, int] = field(default_factory=dict)
    owed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    until: float = inf


_NOTHING: Final = Guaranteed()


def _always_nothing(_: float) -> Guaranteed:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Ground:
    """What may be booked.

    Attributes:
        bins: All GPUs.
        guaranteed: What is guaranteed at a moment, seconds since the epoch.
        models: Models of all GPUs of the cluster, by which names are read; empty: names are models.
    """

    bins: Sequence[Bin]
    guaranteed: Callable[[float], Guaranteed] = _always_nothing
    models: frozenset[str] = frozenset()
    _costs: dict[Hashable, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def milli(self, item: Item) -> int:
        """What a time of a booking costs at most, thousandths."""
        kind = item.chosen or (item.spec.pool, item.spec.models, item.spec.gpus_in_all)
        known = self._costs.get(kind)
        if known is None:
            known = self._costs[kind] = self._milli(item)
        return known

    def _milli(self, item: Item) -> int:
        if item.chosen:
            costs = {(each.node, each.model): each.cost for each in self.bins}
            return sum(costs.get((each.node, each.model), 1) * each.gpus * WHOLE for each in item.chosen)
        able = (each.cost for each in self.bins if _may(each, item.spec, self.models))
        return item.spec.gpus_in_all * max(able, default=1) * WHOLE


@dataclass(frozen=True, slots=True)
class Clash:
    """Why times of bookings do not fit: in words, and when it is so."""

    why: str
    at: int


def items_of(
    booking: str, spec: BookingSpec, since: float, until: float, *, owner: str = "", after: str = ""
) -> list[Item]:
    """The times of a booking that are not over at `since` and begin before `until`; `after`: on later days only."""
    return [
        Item(booking, spec, each.begins, each.ends, owner=owner)
        for each in times(spec, since, until)
        if each.day > after
    ]


def horizon(now: float) -> float:
    """Until when bookings are held against each other, seconds since the epoch."""
    return now + AHEAD_DAYS * DAY_S


def clash(ground: Ground, items: Iterable[Item], only: str | None = None) -> Clash | None:
    """Why not all times can be kept; None: they can. `only`: a booking; what overlaps none of its times is not looked
    at."""
    # What overlaps as something did that has its nodes needs no other look: most days are alike.
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
    """Groups of one form have places, or not, whenever they are there."""
    first = group[0].begins
    return tuple(
        [(each.booking, id(each.spec), each.begins - first, each.ends - first, each.chosen) for each in group]
    )


def laid_out(
    ground: Ground, items: Iterable[Item], only: str | None = None
) -> dict[tuple[str, int], tuple[Chosen, ...]] | None:
    """A place for each time of each booking, by its id and begin; None: no way was found. `only`: as of `clash`."""
    every: dict[tuple[str, int], tuple[Chosen, ...]] = {}
    for group in _overlapping(items, only):
        layout = _Layout(ground, group)
        if not layout.found():
            return None
        every |= layout.places
    return every


def unknown_models(ground: Ground, spec: BookingSpec) -> str:
    """That no node of its pool has GPUs of the models that a booking asks for, in words; "": some have, or it asks for
    none, or nothing is there at all."""
    known = {each.model for each in ground.bins if each.pool == spec.pool}
    if not spec.models or not known or known & {*models_of(spec.models, ground.models)}:
        return ""
    return no_such_model(spec.models, known, f" of pool {spec.pool}")


def never(ground: Ground, item: Item, now: float) -> str:
    """Why a booking does not fit though nothing else be booked, at no other time either, in words; "": it would at
    some. `now`: seconds since the epoch."""
    spec = item.spec
    able = {each.node for each in ground.bins if _may(each, spec, ground.models) and each.gpus >= spec.gpus}
    if len(able) < spec.nodes:
        of = f" {' or '.join(spec.models)}" if spec.models else ""
        what = (
            f"{counted(spec.gpus, 'sound GPU')} of one model" if not spec.models else f"{spec.gpus} sound{of}"
        )
        has = "no node" if not able else counted(len(able), "node")
        return f"{has} of pool {spec.pool} {'has' if len(able) < 2 else 'have'} {what}; {spec.nodes} would be needed"
    misfit = _over_sums(ground, [item])
    return "" if misfit is None or nearest(ground, (), item, now, most=1) else misfit.why


def nearest(
    ground: Ground, others: Sequence[Item], asked: Item, now: float, *, most: int = 2
) -> tuple[int, ...]:
    """When a booking would fit that does not as it was asked for: so many moments before and after that, at most, as
    its first begin, in seconds since the epoch. All of them are feasible.

    Args:
        ground: What may be booked.
        others: Times of all other bookings.
        asked: Its first time.
        now: Seconds since the epoch.
    """
    every = items_of(asked.booking, asked.spec, asked.begins, horizon(now), owner=asked.owner)
    borders = _borders(ground, max(now, asked.begins - _LOOKED_S), asked.ends + _LOOKED_S)
    earlier, later = _candidates(others, every, asked, now, borders)

    def fits(at: int) -> bool:
        if not now <= at < horizon(now):
            return False
        spec = _at(asked.spec, at)
        first = items_of(asked.booking, spec, now, at + 1, owner=asked.owner)
        if [each.begins for each in first] != [at] or _over_sums(ground, first):
            return False  # without a look at all its times
        mine = items_of(asked.booking, spec, now, horizon(now), owner=asked.owner)
        return clash(ground, [*others, *mine], asked.booking) is None

    return (*sorted(_first(earlier, fits, most)), *_first(later, fits, most))


def _at(spec: BookingSpec, at: int) -> BookingSpec:
    return replace(spec, begins=moved(spec, at))


def _first(moments: Iterable[int], fits: Callable[[int], bool], most: int) -> list[int]:
    fit: list[int] = []
    for at in moments:
        if fits(at):
            fit.append(at)
            if len(fit) == most:
                break
    return fit


def _borders(ground: Ground, since: float, until: float) -> list[int]:
    """When other guarantees hold than before, in some time."""
    borders, at = list[int](), since
    while (at := ground.guaranteed(at).until) < until:
        borders.append(int(at))
    return borders


def _candidates(
    others: Sequence[Item], every: Sequence[Item], asked: Item, now: float, borders: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Moments before and after the one that was asked for, the nearest first: when another booking ends as one of its
    times begins, or begins as one ends, and the same with the hours of guarantees. Whole minutes, away from what was
    asked for."""
    shifts: set[int] = {int(now) + 1 - asked.begins}
    begins = sorted({item.begins for item in every})
    ways = {(each.begins, each.ends) for each in others} | {(at, at) for at in borders}
    for first, last in ways:
        for mine in begins[:8]:  # its later times are like these
            shifts |= {last - mine, first - asked.spec.lasts_s - mine}
    moments = {asked.begins + shift for shift in shifts if shift}
    late = sorted({-(-at // _MINUTE) * _MINUTE for at in moments if at > asked.begins} - {asked.begins})
    early = sorted({at // _MINUTE * _MINUTE for at in moments if now < at < asked.begins}, reverse=True)
    return early[:_MAX_TRIED], late[:_MAX_TRIED]


def _may(each: Bin, spec: BookingSpec, known: frozenset[str]) -> bool:
    """Return whether a booking may have GPUs of a kind; `known`: as `Ground.models`."""
    return each.pool == spec.pool and (not spec.models or each.model in models_of(spec.models, known))


def _overlapping(items: Iterable[Item], only: str | None) -> Iterator[list[Item]]:
    """Times that overlap, or that others overlap with both: what is in different groups is never there at once. `only`:
    a booking, of which a time is in each group; None: all groups."""
    for group in _groups(items):
        if only is None or any(item.booking == only for item in group):
            yield group


def _groups(items: Iterable[Item]) -> Iterator[list[Item]]:
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


def _over_itself(group: Sequence[Item]) -> Clash | None:
    last: dict[str, Item] = {}
    for item in group:
        before = last.get(item.booking)
        if before is not None and before.ends > item.begins:
            return Clash("one of its times is not over when the next one begins", item.begins)
        last[item.booking] = item
    return None


def _over_sums(ground: Ground, group: Sequence[Item]) -> Clash | None:
    """Whether more is booked at a moment than nobody is guaranteed, or than a queue is."""
    sums: dict[tuple[str, str], int] = {}  # of what is there at a moment, by owner and pool
    comes, goes = iter(group), iter(sorted(group, key=attrgetter("ends")))
    first, last = next(comes, None), next(goes, None)
    for at in _moments(ground, group):
        while first is not None and first.begins <= at:
            key = first.owner, first.spec.pool
            sums[key] = sums.get(key, 0) + ground.milli(first)
            first = next(comes, None)
        while last is not None and last.ends <= at:
            sums[last.owner, last.spec.pool] -= ground.milli(last)
            last = next(goes, None)
        guaranteed = ground.guaranteed(at)
        for (owner, pool), milli in sums.items():
            most = guaranteed.owed.get((owner, pool), 0) if owner else guaranteed.free.get(pool)
            if most is not None and milli > most:
                return Clash(_of_sum(owner, pool, milli, most, guaranteed.owed), at)
    return None


def _moments(ground: Ground, group: Sequence[Item]) -> list[int]:
    """When more is booked, or guaranteed, than before."""
    moments = {item.begins for item in group}
    at, ends = float(min(moments)), max(item.ends for item in group)
    while (at := ground.guaranteed(at).until) < ends:
        moments.add(int(at))
    return sorted(moments)


def _of_sum(owner: str, pool: str, milli: int, most: int, owed: Mapping[tuple[str, str], int]) -> str:
    of = f" of pool {pool}" if pool != DEFAULT_POOL else ""
    if owner:
        has = f"queue {owner} is guaranteed {counted(number_of(most), 'GPU')}{of}"
        return f"{has}, and {number_of(milli)} would be booked of that"
    free = number_of(most)
    said = f"{counted(free, 'GPU')}{of} {is_or_are(free)} guaranteed to nobody, and {number_of(milli)} would be booked"
    holders = _holders(pool, owed)
    own = "a queue books what it is guaranteed itself with --from-guarantee"
    return f"{said}: {holders}; {own}" if holders else said


def _holders(pool: str, owed: Mapping[tuple[str, str], int]) -> str:
    """Which queues are guaranteed what there is of a pool, in words: not those whose guarantee is of one above."""
    has = {path: milli for (path, of), milli in owed.items() if of == pool and milli}
    top = [path for path in has if not any(path.startswith(f"{above}/") for above in has)]
    top.sort(key=lambda path: (-has[path], path))
    named = [f"queue {path} is guaranteed {number_of(has[path])}" for path in top[:_MAX_NAMED]]
    if len(top) > _MAX_NAMED:
        named.append(f"{counted(len(top) - _MAX_NAMED, 'more queue')} the rest")
    return ", ".join(named)


def _over_nodes(ground: Ground, group: Sequence[Item]) -> Clash | None:
    if _Layout(ground, group).found():
        return None
    peak = max(
        (item.begins for item in group),
        key=lambda at: (sum(o.spec.gpus_in_all for o in group if o.begins <= at < o.ends), -at),
    )
    there = {o.booking: o for o in group if o.begins <= peak < o.ends}
    gpus = sum(each.spec.gpus_in_all for each in there.values())
    return Clash(
        f"no nodes are left for it beside {counted(len(there) - 1, 'booking')} ({gpus} GPUs in all)", peak
    )


class _Layout:
    """A search for places of times that overlap: best fit first, and back where that leads nowhere."""

    def __init__(self, ground: Ground, group: Sequence[Item]) -> None:
        self._models = ground.models
        self._bins = {(each.node, each.model): each for each in ground.bins}
        self._alike: dict[Bin, list[tuple[str, str]]] = {}  # bins but for their nodes, and which are so
        for key, each in sorted(self._bins.items()):
            self._alike.setdefault(replace(each, node=""), []).append(key)
        self._used: dict[tuple[str, str], list[tuple[int, int, int]]] = {}  # of those that have something
        self._items = sorted(group, key=lambda i: (not i.chosen, i.begins, -i.spec.gpus_in_all, i.booking))
        self.places: dict[tuple[str, int], tuple[Chosen, ...]] = {}

    def found(self) -> bool:
        """Whether there is a place for each; then `places` has them."""
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
        """Where a time could be, the nodes first that have least to spare; of nodes that are alike only one."""
        spec, able = item.spec, self._able(item)
        seen = set[object]()
        for first in range(len(able)):
            _, node, model = able[first]
            alike = model, self._bins[node, model].gpus, tuple(self._used.get((node, model), ()))
            if alike in seen:
                continue
            seen.add(alike)
            chosen: dict[str, Chosen] = {}
            for _, node, model in able[first:]:
                chosen.setdefault(node, Chosen(node, model, spec.gpus))
                if len(chosen) == spec.nodes:
                    yield tuple(chosen.values())
                    break
            else:
                return

    def _able(self, item: Item) -> list[tuple[int, str, str]]:
        """Bins that have room for a time, with what they have to spare, in order. Of those that have nothing and are
        alike only as many as it can come to, where each node that it takes has another bin."""
        spec, able = item.spec, list[tuple[int, str, str]]()
        for kind, keys in self._alike.items():
            if _may(kind, spec, self._models) and kind.gpus >= spec.gpus:
                empty = (key for key in keys if key not in self._used)
                able += [(kind.gpus - spec.gpus, *key) for key in islice(empty, 2 * spec.nodes)]
        for key in self._used:
            each = self._bins.get(key)
            if each is not None and _may(each, spec, self._models):
                left = each.gpus - self._most_used(key, item) - spec.gpus
                if left >= 0:
                    able.append((left, *key))
        return sorted(able)

    def _most_used(self, key: tuple[str, str], item: Item) -> int:
        there = [each for each in self._used[key] if each[0] < item.ends and each[1] > item.begins]
        if not there:
            return 0
        moments = {max(begins, item.begins) for begins, _, _ in there}
        return max(sum(n for b, e, n in there if b <= at < e) for at in moments)


def refusal(misfit: Clash, zone: str, moments: Sequence[int]) -> tuple[str, str]:
    """What is wrong, and what would fit instead, in words."""
    what = f"at {shown(misfit.at, zone)} {misfit.why}"
    if not moments:
        return (
            what,
            f"book fewer GPUs, or for a shorter time: no other begin within {AHEAD_DAYS} days was found",
        )
    return what, f"it would fit from {', or '.join(shown(at, zone) for at in moments)} on ({zone})"
