"""Choice of the groups of a fabric that a gang uses: as few as fit. Pure.

Racks are the groups of one level, and blocks are groups outside of it: each rack is in one block. Under limits that are
nested with the racks, taking next the rack that adds most tasks gives the fewest racks, for the reason given for nodes
in `search`. Of the choices with the fewest racks, the one in the fewest blocks is found from tables of the most tasks
that a number of racks in a number of blocks has room for. Tables are not built if they are too large (`MAX_PAIRS`), or
if several racks share a limit: then the number of racks is minimal, but the number of blocks may not be.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from operator import add
from typing import Final

from mesos_gpu.policy.gangs.ground import UNUSED, Ground, Limits, Room

MAX_PAIRS: Final = 20_000  # pairs of entries of two tables to combine at one level: about 20 ms
_Above = tuple[str, str]  # a field, and the value of it that contains a group
#: Most room and the groups that have it, by the number of groups at each level.
_Table = dict[tuple[int, ...], tuple[int, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Near:
    """Preference for few values of a field, then of the fields outside of it and within it.

    Attributes:
        field: Name of the field.
        above: Fields whose values contain those of the field, the nearest first.
        below: Fields whose values lie within those of the field, the outermost first.
        segment: Number of tasks that stay together: the number of tasks at each value of the field is a multiple of it.
        is_required: Whether segments must not be divided; if they do not fit, there is no placement.
    """

    field: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    segment: int = 1
    is_required: bool = False

    @property
    def within(self) -> "Near | None":
        """Preference among the fields within one value of this field; None if there are no such fields."""
        return Near(self.below[0], below=self.below[1:]) if self.below else None

    def groups(self, ground: Ground, counts: Mapping[int, int]) -> tuple[int, ...]:
        """Return how many values of each field a placement uses, in the order of preference."""
        values = [ground.sites[i].values for i in counts]
        return tuple(
            [
                len({site_values[name] for site_values in values})
                for name in (self.field, *self.above, *self.below)
            ]
        )


def choices(ground: Ground, limits: Limits, near: Near) -> Iterator[tuple[Ground, Limits]]:
    """Yield parts of a ground with their limits; placements on earlier parts use fewer groups.

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
        while more < len(others):  # rules other than nested limits may need more groups
            yield _of_groups(ground, near.field, {*chosen, *others[:more]}), limits
            more *= 2
    yield ground, limits


def _within(ground: Ground, limits: Limits, near: Near, chosen: Collection[str]) -> tuple[Ground, Limits]:
    """Return the sites of the chosen groups, restricted to the fewest groups within them at each level below."""
    ground = _of_groups(ground, near.field, chosen)
    for name in near.below:
        inner = _Level(ground, limits, name).chosen()
        ground = _of_groups(ground, name, inner) if inner else ground
    return ground, limits


def _of_groups(ground: Ground, name: str, groups: Collection[str]) -> Ground:
    """Return the ground restricted to sites of some groups."""
    part = [i for i in ground.part if ground.sites[i].values[name] in groups]
    return Ground(ground.tasks, ground.sites, part, ground.apart)


class _Level:
    """Groups at one level, each with its room for tasks of the gang.

    Args:
        ground: Sites of the gang.
        limits: Tasks that may be added, by field and value.
        name: Field whose values are the groups.
        above: Fields whose values contain the groups, the nearest first.
        segment: Divisor of the number of tasks in each group.
    """

    def __init__(
        self, ground: Ground, limits: Limits, name: str, above: Sequence[str] = (), segment: int = 1
    ) -> None:
        self._ground, self._limits, self._segment = ground, limits, segment
        self._sites, sites = ground.values(name), ground.sites
        self._above = {
            group: tuple([(field, sites[members[0]].values[field]) for field in above])
            for group, members in self._sites.items()
        }
        room = Room(ground, limits)
        self.rooms = {group: self._able(room, group) for group in self._sites}
        self._keys = {group: min(sites[i].key for i in members) for group, members in self._sites.items()}
        ordered = {
            group: sorted((sites[i].room for i in members), reverse=True)
            for group, members in self._sites.items()
        }
        self._sums = {group: [*accumulate(rooms)] for group, rooms in ordered.items()}
        self._rooms_above = dict[_Above, int]()
        for group, chain in self._above.items():
            for outer_group in chain:
                self._rooms_above[outer_group] = self._rooms_above.get(outer_group, 0) + self.rooms[group]

    def _able(self, room: Room, group: str) -> int:
        """Return the number of tasks that a group can take beside those that are placed."""
        tasks, members = self._ground.tasks, self._sites[group]
        if self._limits:
            most = room.most(members, tasks)
        else:
            sites = self._ground.sites
            most = min(sum(sites[i].room - room.counts.get(i, 0) for i in members), tasks)
        return most - most % self._segment

    def order(self, group: str) -> tuple[object, ...]:
        """Return the sort key of groups with equal room: groups in the same outer groups come together."""
        outside = [
            (-self._rooms_above[outer_group], outer_group) for outer_group in reversed(self._above[group])
        ]
        return (*outside, *self._rank(group, self.rooms[group]))

    def _rank(self, group: str, tasks: int) -> tuple[int, int, int, int, str]:
        """Return the sort key of groups for a number of tasks: fewest nodes, groups in use, least room, then key."""
        sums, key = self._sums[group], self._keys[group]
        return bisect_left(sums, tasks), key // UNUSED, sums[-1], key, group

    def chosen(self) -> dict[str, int]:
        """Return the fewest groups with room for all tasks, with the number of tasks of each; empty if all lack
        room."""
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
        """Yield groups with the tasks that each adds to those before it, the one that adds most first."""
        room = Room(self._ground, self._limits)
        heap = [(-able, self.order(group), group) for group, able in self.rooms.items()]
        heapify(heap)
        while heap:
            expected, order, group = heappop(heap)
            able = self._able(room, group)
            if able < -expected:  # earlier groups have used up a common limit
                heappush(heap, (-able, order, group))
            elif able:
                room.fill(self._sites[group], able)
                yield group, able
            else:
                return

    def _adds_up(self) -> bool:
        """Return whether the rooms of groups can be added, as no limit covers several groups."""
        sites, at = self._ground.sites, dict[tuple[str, str], str]()
        names = {name for name, _ in self._limits}
        return all(
            at.setdefault((name, sites[i].values[name]), group) == group
            for name in names
            for group, members in self._sites.items()
            for i in members
        )

    def _fewest_above(self, taken: Sequence[str]) -> Sequence[str]:
        """Return as many groups as are taken, with room for all tasks, in the fewest outer groups."""
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
        """Return the table of the most room of 0, 1, 2 and more groups."""
        ordered = sorted(
            groups, key=lambda group: (-self.rooms[group], self._rank(group, self.rooms[group]))
        )[:most]
        sums = accumulate((self.rooms[group] for group in ordered), initial=0)
        return {(count,): (room, tuple(ordered[:count])) for count, room in enumerate(sums)}

    def _tightened(self, taken: Sequence[str]) -> Sequence[str]:
        """Replace groups by preferred ones in the same outer groups that leave room for all tasks."""
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


def _joined(table_a: _Table, table_b: _Table, most: tuple[int, int]) -> _Table:
    """Combine two tables of disjoint groups, up to a number of groups and of outer groups."""
    result: _Table = {}
    for first, (room, groups) in table_a.items():
        for second, (more, others) in table_b.items():
            key = tuple(map(add, first, second))
            if key[0] > most[0] or key[1] > most[1]:
                continue
            best = result.get(key)
            if best is None or best[0] < room + more:
                result[key] = room + more, groups + others
    return result
