"""Search for the nodes of a gang: how many of its tasks each node gets. Pure.

Rules compare the tasks of a gang with each other. Where the values of all limited fields are nested, as hosts in racks
and racks in blocks, always taking the node that adds most tasks is exact: the numbers of tasks that sets of nodes can
hold under nested limits form a polymatroid, whose best sets of one, two, three nodes extend each other. Other rules
need branch and bound, limited to a number of steps. The levels of a fabric are handled first: they restrict the search
to some of the nodes, with limits for each group (`near`).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import inf
from typing import Final

from mesos_gpu.policy.gangs.ground import UNUSED, Counts, Ground, Limits, Room, Site
from mesos_gpu.policy.gangs.near import Near, choices

MAX_LOOKS: Final = 100_000  # cells that a search by branch and bound examines: about 50 ms
_MAX_SWAPS: Final = 2000  # nodes that are examined for exchanges


@dataclass(frozen=True, slots=True)
class Most:
    """Rule: at most a number of tasks of an app at each value of a field.

    Attributes:
        field: Name of the field.
        most: Largest number of tasks.
        held: Tasks of the app that already have a place, by value.
    """

    field: str
    most: int
    held: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Together:
    """Rule: all tasks at one value of a field."""

    field: str


@dataclass(frozen=True, slots=True)
class Groups:
    """Rule: at most a number of values of a field, each with its share of an app's tasks.

    Attributes:
        field: Name of the field.
        count: Number of values.
        tasks: Number of tasks of the app, including waiting ones.
        held: Tasks of the app that already have a place, by value.
    """

    field: str
    count: int
    tasks: int
    held: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Even:
    """Rule: tasks of an app spread evenly over the values of a field, as far as there is room.

    Attributes:
        field: Name of the field.
        held: Tasks of the app that already have a place, by value.
    """

    field: str
    held: Mapping[str, int] = dataclasses.field(default_factory=dict)


Rule = Most | Together | Groups | Even | Near


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a search for a placement.

    Attributes:
        counts: Tasks by site; None if no placement was found.
        is_proven: Whether a missing placement is proven not to exist.
    """

    counts: tuple[int, ...] | None
    is_proven: bool = True


def search(
    tasks: int,
    sites: Sequence[Site],
    rules: Sequence[Rule] = (),
    *,
    apart: bool = False,
    max_looks: int = MAX_LOOKS,
) -> Outcome:
    """Find a placement of all tasks of a gang on as few nodes as possible, preferring nodes with low keys.

    Args:
        tasks: Number of tasks.
        sites: Nodes that the gang may use.
        rules: Rules of its tasks, all of which must hold.
        apart: Whether nodes are dealt one task each in turn, so that as many as possible are used.
        max_looks: Number of examined cells after which branch and bound ends.
    """
    fields = [rule.field for rule in rules if isinstance(rule, Together)]
    near = next((rule for rule in rules if isinstance(rule, Near)), None)
    others = [rule for rule in rules if not isinstance(rule, Together | Near)]
    parts: dict[tuple[str, ...], list[int]] = {}
    for i, site in enumerate(sites):
        if site.room > 0:
            parts.setdefault(tuple([site.values[name] for name in fields]), []).append(i)
    grounds = (Ground(tasks, sites, part, apart) for part in parts.values())
    counts, is_proven = _best(grounds, others, near, max_looks)
    if counts is None:
        return Outcome(None, is_proven)
    return Outcome(tuple([counts.get(i, 0) for i in range(len(sites))]))


_Plain = Most | Groups | Even  # rules that limit the tasks at each value of a field


def _best(
    grounds: Iterable[Ground],
    rules: Sequence[_Plain],
    near: Near | None,
    max_looks: int,
    *,
    tight: bool = False,
) -> tuple[Counts | None, bool]:
    """Return the best placement on any of several grounds, and whether the search was complete.

    Args:
        grounds: Alternative sets of sites for all tasks.
        rules: Rules of the tasks.
        near: Fields of whose values few are preferred; None without such fields.
        max_looks: Number of examined cells after which the search of a ground ends.
        tight: Whether grounds with groups in use, then those with little room, are preferred over low keys of sites.
    """
    best: tuple[tuple[int, ...], Counts] | None = None
    is_complete = True
    for ground in grounds:
        if sum(ground.sites[i].room for i in ground.part) < ground.tasks:
            continue
        counts, complete = _near(ground, rules, near, max_looks)
        is_complete = is_complete and complete
        if counts is not None:
            groups = () if near is None else near.groups(ground, counts)
            nodes = -len(counts) if ground.apart else len(counts)
            key = sum(ground.sites[i].key for i in counts)
            fit = (key // UNUSED, sum(ground.sites[i].room for i in ground.part)) if tight else ()
            worth = *groups, nodes, *fit, key
            if best is None or worth < best[0]:
                best = worth, counts
    return (None, is_complete) if best is None else (best[1], True)


def _near(
    ground: Ground, rules: Sequence[_Plain], near: Near | None, max_looks: int
) -> tuple[Counts | None, bool]:
    """Return a placement on as few groups of a fabric as fit, and whether the search was complete."""
    limits: Limits = {}
    for rule in rules:
        if isinstance(rule, Most):
            for value in ground.values(rule.field):
                left = max(0, rule.most - rule.held.get(value, 0))
                limits[rule.field, value] = min(left, limits.get((rule.field, value), left))
    if near is None:
        return _placed(ground, rules, limits, max_looks)
    alone = [
        Ground(ground.tasks, ground.sites, part, ground.apart)
        for part in ground.values(near.field).values()
        if sum(ground.sites[i].room for i in part) >= ground.tasks
    ]
    counts, complete = _best(alone, rules, near.within, max_looks // max(1, len(alone)), tight=True)
    if counts is not None or (near.is_required and near.segment >= ground.tasks):
        return counts, complete
    is_nested = not any(isinstance(rule, Groups) for rule in rules) and _are_nested(
        ground, [near.field, *(name for name, _ in limits)]
    )
    for part, limited in choices(ground, limits, near):
        counts, complete = _placed(part, rules, limited, max_looks)
        if counts is not None:
            return counts, True
    return None, complete and (is_nested or not near.is_required)


def _placed(
    ground: Ground, rules: Sequence[_Plain], limits: Limits, max_looks: int
) -> tuple[Counts | None, bool]:
    """Return the tasks by site, None if no placement was found, and whether the search was complete."""
    groups = [rule for rule in rules if isinstance(rule, Groups)]
    limited = [*(name for name, _ in limits), *(rule.field for rule in groups)]
    if not groups and _are_nested(ground, limited):
        return _evenly(ground, limits, [rule for rule in rules if isinstance(rule, Even)]), True
    first = (
        _filled(ground, _shares(ground, limits, groups[0]) if groups else limits) if len(groups) < 2 else None
    )
    if first is not None and ground.apart:
        return first, True
    branches = _Branches(ground, limits, groups, max_looks if first is None else max_looks // 10)
    better = branches.search(None if first is None else len(first))
    return (first, True) if first is not None and better is None else (better, branches.is_complete)


def _are_nested(ground: Ground, fields: Sequence[str]) -> bool:
    """Return whether the sets of sites at two values never overlap, unless one contains the other."""
    names = list(dict.fromkeys(fields))
    sizes = [Counter(ground.sites[i].values[name] for i in ground.part) for name in names]
    for a, name in enumerate(names):
        for b in range(a):
            both = Counter(
                (ground.sites[i].values[name], ground.sites[i].values[names[b]]) for i in ground.part
            )
            if any(
                count not in (sizes[a][value], sizes[b][other_value])
                for (value, other_value), count in both.items()
            ):
                return False
    return True


# --- nested limits


def _evenly(ground: Ground, limits: Limits, rules: Sequence[Even]) -> Counts | None:
    """Place all tasks under nested limits, evenly over values where the limits allow it."""
    counts = _filled(ground, limits)
    for rule in rules if counts is not None else ():
        even = _even_shares(ground, limits, rule)
        if (better := _filled(ground, even)) is not None:
            limits, counts = even, better
    return counts


def _even_shares(ground: Ground, limits: Limits, rule: Even) -> Limits:
    """Return limits that also level the values of a field, as far as there is room at each."""
    room, free_sites = Room(ground, limits), ground.values(rule.field)
    heap = [(rule.held.get(value, 0), value) for value in free_sites]
    heapify(heap)
    shares, missing = dict.fromkeys(free_sites, 0), ground.tasks
    while missing and heap:
        has, value = heappop(heap)
        while free_sites[value] and not room.at(free_sites[value][-1]):
            free_sites[value].pop()
        if free_sites[value]:
            room.place(free_sites[value][-1], 1)
            shares[value] += 1
            missing -= 1
            heappush(heap, (has + 1, value))
    return {**limits, **{(rule.field, value): share for value, share in shares.items()}}


def _filled(ground: Ground, limits: Limits) -> Counts | None:
    """Place all tasks under nested limits; None if they do not fit."""
    room = Room(ground, limits)
    return _dealt(ground, room) if ground.apart else _gathered(ground, room)


def _dealt(ground: Ground, room: Room) -> Counts | None:
    """Deal sites one task each in turn."""
    heap = [(0, ground.sites[i].key, i) for i in ground.part]
    heapify(heap)
    missing = ground.tasks
    while missing and heap:
        has, key, i = heappop(heap)
        if room.at(i) > 0:
            room.place(i, 1)
            missing -= 1
            heappush(heap, (has + 1, key, i))
    return None if missing else room.counts


def _gathered(ground: Ground, room: Room) -> Counts | None:
    """Place tasks on as few sites as fit: always the site that takes most, and the last one by its key."""
    sites, missing = ground.sites, ground.tasks
    heap = [(-room.at(i), sites[i].key, i) for i in ground.part]
    heapify(heap)
    while missing and heap:
        expected, key, i = heappop(heap)
        able = room.at(i)
        if able < -expected:  # earlier sites have used up a common limit
            if able > 0:
                heappush(heap, (-able, key, i))
            continue
        if able < missing:
            room.place(i, able)
            missing -= able
            continue
        rest = [i, *(other for _, _, other in heap)]
        last = min((j for j in rest if room.at(j) >= missing), key=lambda j: (sites[j].key, room.at(j), j))
        room.place(last, missing)
        return _swapped(ground, room)
    return None if missing else room.counts


def _swapped(ground: Ground, room: Room) -> Counts:
    """Exchange sites for preferred ones that take as many tasks."""
    sites = ground.sites
    free = sorted((i for i in ground.part if i not in room.counts), key=lambda i: (sites[i].key, i))
    looks = 0
    for i in sorted(room.counts, key=lambda i: (-sites[i].key, i)):
        if looks > _MAX_SWAPS or not free or sites[free[0]].key >= sites[i].key:
            break
        count = room.counts[i]
        room.place(i, -count)
        beside = [other for other in room.counts if other != i]
        for j in free:
            looks += 1 + len(beside)
            if sites[j].key >= sites[i].key:
                room.place(i, count)
                break
            if room.at(j) and room.place_all((j, *beside), count):
                free.remove(j)
                break
        else:
            room.place(i, count)
    return room.counts


# --- shares of groups


def _shares(ground: Ground, limits: Limits, rule: Groups) -> Limits:
    """Return limits that also give a number of values their shares, first those that can take most of it."""
    share, rest = divmod(rule.tasks, rule.count)
    rest -= sum(max(0, held - share) for held in rule.held.values())
    able: list[tuple[int, int, str]] = []
    for value, members in ground.values(rule.field).items():
        held = rule.held.get(value, 0)
        room = Room(Ground(share + 1, ground.sites, members, ground.apart), limits)
        most = room.most(members, max(0, share + 1 - held))
        hosts = len(
            _gathered(Ground(min(most, max(0, share - held)), ground.sites, members, False), room) or ()
        )
        able.append((-most, hosts, value))
    new = rule.count - len(rule.held)
    merged = dict(limits)
    for most, _, value in sorted(able):
        held = rule.held.get(value, 0)
        if not held:
            new -= 1
        left = 0
        if held or new >= 0:
            left = max(0, share - held)
            if -most > left and rest > 0:
                left, rest = left + 1, rest - 1
        merged[rule.field, value] = min(left, limits.get((rule.field, value), left))
    return merged


# --- branch and bound


class _Branches:
    """Branch-and-bound search over cells: sets of sites with equal values in all limited fields.

    Args:
        ground: Sites of the gang.
        limits: Tasks that may be added, by field and value.
        groups: Rules that limit the number of values of a field.
        max_looks: Number of examined cells after which the search ends.
    """

    def __init__(self, ground: Ground, limits: Limits, groups: Sequence[Groups], max_looks: int) -> None:
        self._ground, self._limits, self._groups = ground, dict(limits), groups
        self._looks = max_looks
        names = list(dict.fromkeys([*(name for name, _ in limits), *(rule.field for rule in groups)]))
        cells: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for i in ground.part:
            cells.setdefault(tuple([(name, ground.sites[i].values[name]) for name in names]), []).append(i)
        rooms = {keys: sum(ground.sites[i].room for i in members) for keys, members in cells.items()}
        self._keys = sorted(cells, key=lambda keys: (-rooms[keys], keys))
        self._rooms = [rooms[keys] for keys in self._keys]
        self._values = [dict(keys) for keys in self._keys]
        self._limited = {name for name, _ in limits}
        self._cells = [
            sorted(cells[keys], key=lambda i: (-ground.sites[i].room, ground.sites[i].key, i))
            for keys in self._keys
        ]
        self._after = self._rooms_after(names)
        self._room_after = [*accumulate(reversed(self._rooms), initial=0)][::-1]
        self._held = [Counter(dict(rule.held)) for rule in groups]
        self._counts = [0] * len(self._keys)
        self._fewest = inf  # number of sites that a placement must stay below
        self._best: list[int] | None = None  # tasks by cell of the best placement so far
        self.is_complete = True

    def _rooms_after(self, names: Sequence[str]) -> list[dict[str, Counter[str]]]:
        """Return for each cell the room of that cell and those after it, by field and value."""
        sums: dict[str, Counter[str]] = {name: Counter() for name in names}
        rooms: list[dict[str, Counter[str]]] = []
        for keys, room in zip(reversed(self._keys), reversed(self._rooms), strict=True):
            for name, value in keys:
                sums[name][value] += room
            rooms.append({name: Counter(counter) for name, counter in sums.items()})
        return [*reversed(rooms), {name: Counter() for name in names}]

    def search(self, below: int | None = None) -> Counts | None:
        """Return the tasks by site of the placement on the fewest sites; None if no such placement was found.

        Args:
            below: Number of sites of which there must be fewer; None for any number.
        """
        self._fewest = inf if below is None else below
        self._go(0, self._ground.tasks, 0)
        if self._best is None:
            return None
        counts: Counts = {}
        for members, count in zip(self._cells, self._best, strict=True):
            part = Ground(count, self._ground.sites, members, self._ground.apart)
            counts |= _filled(part, {}) or {}
        return counts

    def _go(self, at: int, missing: int, hosts: int) -> None:
        """Extend the placement from cell `at` on; record it if it is complete and uses fewer sites than the best."""
        if not missing:
            if hosts < self._fewest:
                self._fewest, self._best = hosts, list(self._counts)
            return
        if self._looks <= 0:
            self.is_complete = False
            return
        self._looks -= len(self._keys) - at + 1
        if at == len(self._keys) or hosts + 1 >= self._fewest:
            return
        if self._bound(at) < missing:
            return
        for count in range(min(self._able(at), missing), -1, -1):
            self._add(at, count)
            self._go(at + 1, missing - count, hosts + self._hosts(at, count))
            self._add(at, -count)

    def _hosts(self, at: int, count: int) -> int:
        """Return how many sites of a cell a number of tasks uses."""
        hosts = 0
        for i in self._cells[at]:
            if count <= 0:
                break
            count -= self._ground.sites[i].room
            hosts += 1
        return hosts

    def _add(self, at: int, count: int) -> None:
        """Add tasks to a cell, or take them away, in the counts, limits and groups."""
        if not count:
            return
        self._counts[at] += count
        for key in self._keys[at]:
            if key in self._limits:
                self._limits[key] -= count
        for rule, held in zip(self._groups, self._held, strict=True):
            value = self._values[at][rule.field]
            held[value] += count
            if not held[value]:
                del held[value]

    def _able(self, at: int) -> int:
        """Return the number of tasks that a cell can take."""
        able = min([self._rooms[at], *(self._limits.get(key, self._rooms[at]) for key in self._keys[at])])
        for rule, held in zip(self._groups, self._held, strict=True):
            able = min(able, _may_add(rule, held, self._values[at][rule.field]))
        return able

    def _bound(self, at: int) -> int:
        """Return an upper bound of the tasks that this cell and those after it can take."""
        bounds = [self._room_after[at]]
        after = self._after[at]
        for name in self._limited:
            bounds.append(
                sum(min(room, self._limits.get((name, value), room)) for value, room in after[name].items())
            )
        for rule, held in zip(self._groups, self._held, strict=True):
            bounds.append(_may_add_in_all(rule, held, after[rule.field]))
        return min(bounds)


def _may_add(rule: Groups, held: Mapping[str, int], value: str) -> int:
    """Return the number of tasks that may be added at a value, if none is added elsewhere."""
    if not held.get(value, 0) and len(held) >= rule.count:
        return 0
    share, rest = divmod(rule.tasks, rule.count)
    beyond = sum(max(0, count - share) for other, count in held.items() if other != value)
    return max(0, share + max(0, min(1, rest - beyond)) - held.get(value, 0))


def _may_add_in_all(rule: Groups, held: Mapping[str, int], rooms: Mapping[str, int]) -> int:
    """Return an upper bound of the tasks that all values together can take."""
    share = rule.tasks // rule.count
    new = sorted((min(room, share + 1) for value, room in rooms.items() if value not in held), reverse=True)
    old = sum(min(room, max(0, share + 1 - held[value])) for value, room in rooms.items() if value in held)
    return old + sum(new[: max(0, rule.count - len(held))])
