"""Choice of the groups of a fabric that a gang uses: as few as fit. Pure.

Racks are the groups of one level, and blocks are groups outside of it: each rack is in one block. Under limits that are
nested with the racks, taking the rack next that adds most gives the fewest racks, for the reason that holds of nodes
(`search`). Of the choices with so few racks, the one in the fewest blocks is found by tables of the most tasks that
some racks of some blocks have room for. Tables that are too large (`MAX_PAIRS`) are not made, nor tables of racks of
which several are under one limit: then the number of racks is the least, and the number of blocks may not be.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from operator import add
from typing import Final

from mesos_gpu.policy.gangs.ground import UNUSED, Ground, Limits, Room

MAX_PAIRS: Final = 20_000  # of entries of two tables, at one level: about 20 ms
_Above = tuple[str, str]  # a field, and the value of it that contains a group
_Table = dict[
    tuple[int, ...], tuple[int, tuple[str, ...]]
]  # by numbers of groups: the most room, and where it is


@dataclass(frozen=True, slots=True)
class Near:
    """Fewest values of a field that the tasks of a gang fit on, then of the fields outside of it and within it.

    Attributes:
        field: Name of the field.
        above: Fields whose values contain those of the field, the nearest first.
        below: Fields whose values lie within those of the field, the outermost first.
        segment: Number of tasks that stay together: the tasks at each value of the field are a multiple of it.
        is_required: Whether there is no placement where segments do not fit; if not, they are divided there.
    """

    field: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    segment: int = 1
    is_required: bool = False

    @property
    def within(self) -> "Near | None":
        """The fewest values of the fields within one value of the field; None if there are no such fields."""
        return Near(self.below[0], below=self.below[1:]) if self.below else None

    def groups(self, ground: Ground, counts: Mapping[int, int]) -> tuple[int, ...]:
        """Return how many values of each field a placement uses, in the order in which few are preferred."""
        values = [ground.sites[i].values for i in counts]
        return tuple(
            [len({each[name] for each in values}) for name in (self.field, *self.above, *self.below)]
        )


def choices(ground: Ground, limits: Limits, near: Near) -> Iterator[tuple[Ground, Limits]]:
    """Yield parts of a ground, each with its limits: a placement on an earlier one uses fewer groups.

    Args:
        ground: Sites of the gang.
        limits: Tasks that may be added, by field and value.
        near: Fields whose values are the groups.
    """
    if near.segment > 1:
        level = _Level(ground, limits, near.field, near.above, near.segment)
        if ground.tasks % near.segment == 0 and (chosen := level.chosen()):
            quotas = {(near.field, group): tasks for group, tasks in chosen.items()}
            yield _within(ground, limits | quotas, near, chosen)
        if near.is_required:
            return
    level = _Level(ground, limits, near.field, near.above)
    if chosen := level.chosen():
        yield _within(ground, limits, near, chosen)
        others, more = [group for group in level.rooms if group not in chosen], 1
        others.sort(key=lambda group: (-level.rooms[group], level.order(group)))
        while more < len(others):  # rules that are more than nested limits may need more groups
            yield _of_groups(ground, near.field, {*chosen, *others[:more]}), limits
            more *= 2
    yield ground, limits


def _within(ground: Ground, limits: Limits, near: Near, chosen: Collection[str]) -> tuple[Ground, Limits]:
    """Return the ground of some groups, and of the fewest groups within them at each level below."""
    ground = _of_groups(ground, near.field, chosen)
    for name in near.below:
        inner = _Level(ground, limits, name).chosen()
        ground = _of_groups(ground, name, inner) if inner else ground
    return ground, limits


def _of_groups(ground: Ground, name: str, groups: Collection[str]) -> Ground:
    part = [i for i in ground.part if ground.sites[i].values[name] in groups]
    return Ground(ground.tasks, ground.sites, part, ground.apart)


class _Level:
    """Groups at one level, each with its room for tasks of the gang."""

    def __init__(
        self, ground: Ground, limits: Limits, name: str, above: Sequence[str] = (), segment: int = 1
    ) -> None:
        """Look at each group by itself.

        Args:
            ground: Sites of the gang.
            limits: Tasks that may be added, by field and value.
            name: Field whose values are the groups.
            above: Fields whose values contain the groups, the nearest first.
            segment: Number of which the tasks in each group are a multiple.
        """
        self._ground, self._limits, self._segment = ground, limits, segment
        self._sites, sites = ground.values(name), ground.sites
        self._above = {
            group: tuple([(each, sites[there[0]].values[each]) for each in above])
            for group, there in self._sites.items()
        }
        room = Room(ground, limits)
        self.rooms = {group: self._able(room, group) for group in self._sites}
        self._keys = {group: min(sites[i].key for i in there) for group, there in self._sites.items()}
        ordered = {
            group: sorted((sites[i].room for i in there), reverse=True)
            for group, there in self._sites.items()
        }
        self._sums = {group: [*accumulate(rooms)] for group, rooms in ordered.items()}
        self._rooms_above = dict[_Above, int]()
        for group, chain in self._above.items():
            for each in chain:
                self._rooms_above[each] = self._rooms_above.get(each, 0) + self.rooms[group]

    def _able(self, room: Room, group: str) -> int:
        """Return the number of tasks that a group can take beside those that are placed."""
        tasks, there = self._ground.tasks, self._sites[group]
        if self._limits:
            most = room.most(there, tasks)
        else:
            sites = self._ground.sites
            most = min(sum(sites[i].room - room.counts.get(i, 0) for i in there), tasks)
        return most - most % self._segment

    def order(self, group: str) -> tuple[object, ...]:
        """Return the order of groups with as much room: those that are beside each other further outside."""
        outside = [(-self._rooms_above[each], each) for each in reversed(self._above[group])]
        return (*outside, *self._rank(group, self.rooms[group]))

    def _rank(self, group: str, tasks: int) -> tuple[int, int, int, int, str]:
        """Return the order in which groups are preferred for some tasks: by nodes, those in use, by room, by key."""
        sums, key = self._sums[group], self._keys[group]
        return bisect_left(sums, tasks), key // UNUSED, sums[-1], key, group

    def chosen(self) -> dict[str, int]:
        """Return the most tasks of each of the fewest groups that have room for all; empty if all have not."""
        missing, taken = self._ground.tasks, dict[str, int]()
        for group, able in self._by_room():
            taken[group] = min(able, missing)
            missing -= taken[group]
            if not missing:
                break
        if missing:
            return {}
        if not self._adds_up():
            return taken
        best = self._tightened(self._fewest_above([*taken]))
        missing, taken = self._ground.tasks, {}
        for group in sorted(best, key=lambda group: (-self.rooms[group], group)):
            taken[group] = min(self.rooms[group], missing)
            missing -= taken[group]
        return taken

    def _by_room(self) -> Iterator[tuple[str, int]]:
        """Yield the groups with the tasks that each adds to those before it, the one that adds most first."""
        room = Room(self._ground, self._limits)
        line = [(-able, self.order(group), group) for group, able in self.rooms.items()]
        heapify(line)
        while line:
            known, order, group = heappop(line)
            able = self._able(room, group)
            if able < -known:  # groups beside it took of a limit
                heappush(line, (-able, order, group))
            elif able:
                room.fill(self._sites[group], able)
                yield group, able
            else:
                return

    def _adds_up(self) -> bool:
        """Return whether no limit is one of several groups together."""
        sites, at = self._ground.sites, dict[tuple[str, str], str]()
        names = {name for name, _ in self._limits}
        return all(
            at.setdefault((name, sites[i].values[name]), group) == group
            for name in names
            for group, there in self._sites.items()
            for i in there
        )

    def _fewest_above(self, taken: Sequence[str]) -> Sequence[str]:
        """Return as many groups as are taken, with room for all tasks, in the fewest groups further outside."""
        above = {self._above[group] for group in taken}
        if len(above) == 1:
            return taken
        most = len(taken), len({chain[0] for chain in above})
        by_chain = dict[tuple[_Above, ...], list[str]]()
        for group, chain in self._above.items():
            by_chain.setdefault(chain, []).append(group)
        tables = {chain: self._table(groups, len(taken)) for chain, groups in by_chain.items()}
        pairs = MAX_PAIRS
        for _ in range(len(next(iter(above)))):
            joined = dict[tuple[_Above, ...], _Table]()
            for chain, table in tables.items():
                counted = {(*key, int(key[0] > 0)): best for key, best in table.items()}
                beside = joined.get(chain[1:])
                if beside is not None:
                    pairs -= len(beside) * len(counted)
                    if pairs < 0:
                        return taken
                joined[chain[1:]] = counted if beside is None else _joined(beside, counted, most)
            tables = joined
        (table,) = tables.values()
        return table[min(key for key, (room, _) in table.items() if room >= self._ground.tasks)][1]

    def _table(self, groups: Sequence[str], most: int) -> _Table:
        """Return the most room of 0, 1, 2 and more groups."""
        ordered = sorted(
            groups, key=lambda group: (-self.rooms[group], self._rank(group, self.rooms[group]))
        )[:most]
        sums = accumulate((self.rooms[group] for group in ordered), initial=0)
        return {(count,): (room, tuple(ordered[:count])) for count, room in enumerate(sums)}

    def _tightened(self, taken: Sequence[str]) -> Sequence[str]:
        """Exchange groups for preferred ones beside them that leave room for all tasks."""
        best = list(taken)
        spare = sum(self.rooms[group] for group in best) - self._ground.tasks
        for group in sorted(taken, key=lambda group: self._rank(group, self.rooms[group]), reverse=True):
            needed = self.rooms[group] - spare
            others = [
                other
                for other, room in self.rooms.items()
                if room >= needed and self._above[other] == self._above[group] and other not in best
            ]
            other = min((group, *others), key=lambda other: self._rank(other, needed))
            best[best.index(group)] = other
            spare += self.rooms[other] - self.rooms[group]
        return best


def _joined(one: _Table, other: _Table, most: tuple[int, int]) -> _Table:
    """Return the most room of the groups of two tables together, up to numbers of groups and of those above them."""
    table: _Table = {}
    for first, (room, groups) in one.items():
        for second, (more, others) in other.items():
            key = tuple(map(add, first, second))
            if key[0] > most[0] or key[1] > most[1]:
                continue
            known = table.get(key)
            if known is None or known[0] < room + more:
                table[key] = room + more, groups + others
    return table
