"""Amounts of what Mesos counts: the one place that knows which there are, how they round, and what Mesos calls them.

A further amount takes a row of AMOUNTS, an argument and a property here, and a field of `JobSpec` of the same name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import add, attrgetter, ge, sub
from typing import Any, Final

#: How many tasks fit, by what none of them asks for.
UNLIMITED: Final = 1 << 30
_PER_UNIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Amount:
    """A kind of amount."""

    name: str  # as `Resources` and `JobSpec` have it, with its unit
    mesos: str  # the name of Mesos' scalar
    words: str  # after a number: "lacks 3 MiB of memory"
    noun: str  # after a number where all nodes are spoken of: "only 3 CPUs are free in all"
    of_request: str  # after a number where all that a request asks for is listed; "": it is not named there
    always: bool = False  # named there even if it is 0
    least: int = 0  # that a job asks for
    divisible: bool = False  # whether a job may ask for a part of one


#: In the order in which snapshots of the state have them; new ones come last.
AMOUNTS: Final = (
    Amount("cpus", "cpus", "cpus", "CPUs", "cpus", always=True, divisible=True),
    Amount("mem_mib", "mem", "MiB of memory", "MiB of memory", "MiB", always=True, least=1),
    Amount("gpus", "gpus", "GPUs", "GPUs", ""),
    Amount("disk_mib", "disk", "MiB of disk", "MiB of disk", "MiB of disk"),
)
_CPUS, _MEM, _GPUS, _DISK = range(len(AMOUNTS))
_OF_MESOS: Final = {amount.mesos: i for i, amount in enumerate(AMOUNTS)}
_AMOUNTS_OF: Final = attrgetter(*(amount.name for amount in AMOUNTS))


def thousandths(value: float) -> int:
    """A scalar as Mesos keeps it: to three decimals (Value::Scalar in src/common/values.cpp)."""
    return round(round(value, 3) * _PER_UNIT)


def units(value: int) -> float:
    """The scalar of so many thousandths."""
    return value / _PER_UNIT


class Resources:
    """Amounts, exact to a thousandth. They may be negative: what is kept for others can exceed what is free now.

    GPUs are counted as Mesos does, which does not say which they are.
    """

    __slots__ = ("_milli",)
    _milli: tuple[int, ...]

    def __init__(
        self, *, cpus: float = 0.0, mem_mib: float = 0.0, gpus: float = 0.0, disk_mib: float = 0.0
    ) -> None:
        """Amounts in their units."""
        self._milli = tuple(map(thousandths, (cpus, mem_mib, gpus, disk_mib)))

    @classmethod
    def of(cls, values: Iterable[float]) -> "Resources":
        """Make them of amounts in the order of AMOUNTS, as `list` gives them; missing ones at the end are 0."""
        amounts = [thousandths(value) for value in values]
        return _made((*amounts, *[0] * (len(AMOUNTS) - len(amounts))))

    @classmethod
    def of_milli(cls, milli: Iterable[int]) -> "Resources":
        """Make them of thousandths, all of them in the order of AMOUNTS."""
        return _made(tuple(milli))

    @classmethod
    def of_spec(cls, spec: Any) -> "Resources":
        """From whatever has a field for each amount."""
        return _known(_AMOUNTS_OF(spec))

    @classmethod
    def of_mesos(cls, scalars: Iterable[tuple[str, float]]) -> "Resources":
        """The sums of scalars by Mesos' names; those of other names are left out."""
        sums = [0] * len(AMOUNTS)
        for name, value in scalars:
            i = _OF_MESOS.get(name)
            if i is not None:
                sums[i] += round(value * _PER_UNIT)  # Mesos gives no more decimals
        return _made(tuple(sums))

    def mesos_milli(self) -> dict[str, int]:
        """Thousandths by Mesos' names, those that are above 0."""
        return {name: value for name, value in zip(_OF_MESOS, self._milli, strict=True) if value > 0}

    def __iter__(self) -> Iterator[float]:
        """In the order of AMOUNTS."""
        return map(units, self._milli)

    def items(self) -> Iterator[tuple[Amount, float]]:
        """Each amount that is not 0."""
        return ((amount, value) for amount, value in zip(AMOUNTS, self, strict=True) if value)

    def each(self) -> Iterator[tuple[Amount, "Resources"]]:
        """Each amount that is not 0, and nothing beside it."""
        for i, (amount, value) in enumerate(zip(AMOUNTS, self._milli, strict=True)):
            if value:
                yield amount, _made((*[0] * i, value, *[0] * (len(AMOUNTS) - i - 1)))

    @property
    def cpus(self) -> float:
        """Processors."""
        return self._milli[_CPUS] / _PER_UNIT

    @property
    def cpu_milli(self) -> int:
        """Thousandths of processors."""
        return self._milli[_CPUS]

    @property
    def mem_mib(self) -> float:
        """Memory of hosts."""
        return self._milli[_MEM] / _PER_UNIT

    @property
    def gpus(self) -> int:
        """GPUs, as Mesos counts them: whole ones."""
        return self._milli[_GPUS] // _PER_UNIT

    @property
    def disk_mib(self) -> float:
        """File system, for sandboxes."""
        return self._milli[_DISK] / _PER_UNIT

    @property
    def milli(self) -> tuple[int, ...]:
        """Thousandths, in the order of AMOUNTS."""
        return self._milli

    @property
    def unindexed(self) -> tuple[int, ...]:
        """Thousandths of the amounts that the arrays of placement have no column for."""
        return self._milli[_DISK:]

    def __add__(self, other: "Resources") -> "Resources":
        if other is NOTHING:  # most often, where no card is shared
            return self
        return _made(tuple(map(add, self._milli, other._milli)))

    def __sub__(self, other: "Resources") -> "Resources":
        if other is NOTHING:
            return self
        return _made(tuple(map(sub, self._milli, other._milli)))

    def scaled(self, count: int) -> "Resources":
        """So many times as much."""
        if not count:
            return NOTHING
        return _made(tuple([value * count for value in self._milli]))

    def halves(self) -> tuple["Resources", "Resources"]:
        """Two that are together as much."""
        half = _made(tuple([value // 2 for value in self._milli]))
        return self - half, half

    def with_gpus(self, gpus: int) -> "Resources":
        """With that count of GPUs instead."""
        return _made((*self._milli[:_GPUS], gpus * _PER_UNIT, *self._milli[_GPUS + 1 :]))

    def with_cpu_milli(self, milli: int) -> "Resources":
        """Return these amounts with so many thousandths of processors instead."""
        return _made((milli, *self._milli[1:]))

    def least(self, other: "Resources") -> "Resources":
        """The smaller of each amount."""
        return _made(tuple(map(min, self._milli, other._milli)))

    def most(self, other: "Resources") -> "Resources":
        """The larger of each amount."""
        return _made(tuple(map(max, self._milli, other._milli)))

    @classmethod
    def largest(cls, every: Iterable["Resources"]) -> "Resources":
        """The most of each amount; NOTHING if there are none."""
        return _made(tuple(map(max, zip(*[each._milli for each in every], strict=True))) or NOTHING._milli)

    def covers(self, need: "Resources") -> bool:
        """Whether there is enough of each amount. One that is negative is not: more of it is kept than there is."""
        return all(map(ge, self._milli, need._milli))

    def times(self, need: "Resources") -> int:
        """How often that fits in, by the amounts that it asks for; UNLIMITED if it asks for nothing."""
        fit = [have // want for have, want in zip(self._milli, need._milli, strict=True) if want > 0]
        return max(min(fit), 0) if fit else UNLIMITED

    def lacking(self, need: "Resources") -> "Resources":
        """How much more is asked for than there is, by amount."""
        pairs = zip(self._milli, need._milli, strict=True)
        return _made(tuple([want - have if want and want > have else 0 for have, want in pairs]))

    def __bool__(self) -> bool:
        """Whether any amount is not 0."""
        return any(self._milli)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._milli == other._milli

    def __hash__(self) -> int:
        return hash(self._milli)

    def __repr__(self) -> str:
        said = ", ".join(f"{amount.name}={value:g}" for amount, value in self.items())
        return f"Resources({said})"


def _made(milli: tuple[int, ...]) -> Resources:
    made = object.__new__(Resources)
    made._milli = milli
    return made


@lru_cache(maxsize=4096)
def _known(values: tuple[float, ...]) -> Resources:
    """Many tasks have the same: a thousand are looked at in a match."""
    return Resources.of(values)


NOTHING: Final = Resources()


def total(every: Iterable[Resources]) -> Resources:
    """The sum."""
    amounts = NOTHING
    for each in every:
        amounts = amounts + each if amounts is not NOTHING else each
    return amounts
