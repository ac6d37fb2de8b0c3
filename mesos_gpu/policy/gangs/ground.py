"""Sites of a gang, and their room under limits as tasks are placed. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

UNUSED: Final = 1 << 40  # added to a site's key for each wholly free group of the fabric that it would break


@dataclass(frozen=True, slots=True)
class Site:
    """A node as a place for tasks of one gang.

    Attributes:
        room: Number of tasks that fit.
        values: Values of the fields that rules name, by field.
        key: Rank by the placement policy; the lowest is preferred.
    """

    room: int
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    key: int = 0


Counts = dict[int, int]  # tasks by number of the site, none of them 0
Limits = dict[tuple[str, str], int]  # tasks that may be added, by field and value


@dataclass(frozen=True, slots=True)
class Ground:
    """Sites on which a gang may be placed, all with one value in each field that must have a common value.

    Attributes:
        tasks: Number of tasks to place.
        sites: Sites of the search, by number.
        part: Numbers of the sites that are considered.
        apart: Whether sites are dealt one task each in turn.
    """

    tasks: int
    sites: Sequence[Site]
    part: Sequence[int]
    apart: bool

    def values(self, name: str) -> dict[str, list[int]]:
        """Return the sites at each value of a field."""
        by_value: dict[str, list[int]] = {}
        for i in self.part:
            by_value.setdefault(self.sites[i].values[name], []).append(i)
        return by_value


class Room:
    """Remaining room of sites under limits while tasks are placed.

    Args:
        ground: Sites of the gang.
        limits: Tasks that may be added, by field and value.
    """

    def __init__(self, ground: Ground, limits: Limits) -> None:
        self._sites, self._left = ground.sites, dict(limits)
        names = list(dict.fromkeys(name for name, _ in limits))
        self._keys = {i: [(name, ground.sites[i].values[name]) for name in names] for i in ground.part}
        self.counts: Counts = {}

    def at(self, i: int) -> int:
        """Return the number of tasks that a site can take beside those that are placed."""
        room = self._sites[i].room - self.counts.get(i, 0)
        for key in self._keys[i]:
            room = min(room, self._left.get(key, room))
        return room

    def place(self, i: int, count: int) -> None:
        """Place tasks on a site; a negative count takes them away."""
        self.counts[i] = self.counts.get(i, 0) + count
        if not self.counts[i]:
            del self.counts[i]
        for key in self._keys[i]:
            if key in self._left:
                self._left[key] -= count

    def fill(self, sites: Sequence[int], count: int) -> list[tuple[int, int]]:
        """Place as many tasks as fit, the first site first; return the tasks that each site took."""
        placed: list[tuple[int, int]] = []
        for i in sites:
            able = min(self.at(i), count)
            if able > 0:
                self.place(i, able)
                placed.append((i, able))
                count -= able
        return placed

    def place_all(self, sites: Sequence[int], count: int) -> bool:
        """Place tasks on sites, the first first, and return True; place none and return False if they do not fit."""
        placed = self.fill(sites, count)
        fits = sum(able for _, able in placed) == count
        if not fits:
            self._take_away(placed)
        return fits

    def most(self, sites: Sequence[int], bound: int) -> int:
        """Return how many tasks some sites can take, up to a bound; nothing is placed."""
        placed = self.fill(sites, bound)
        self._take_away(placed)
        return sum(able for _, able in placed)

    def _take_away(self, placed: Sequence[tuple[int, int]]) -> None:
        """Take placed tasks away again."""
        for i, count in placed:
            self.place(i, -count)
