"""Amounts of Mesos resources. This module alone defines their kinds, rounding and Mesos names.

To add a kind, add a row of AMOUNTS, an argument and a property here, and a field of `JobSpec` of that name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import add, attrgetter, ge, sub
from typing import Any, Final

#: Result of `Resources.times` for a task that requests nothing.
UNLIMITED: Final = 1 << 30
_PER_UNIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Amount:
    """A kind of resource, with its names in code, in Mesos and in messages."""

    name: str  # name of the field of `Resources` and `JobSpec`, with the unit
    mesos: str  # name of the Mesos scalar
    words: str  # after a number: "lacks 3 MiB of memory"
    noun: str  # after a number in messages about all nodes: "only 3 CPUs are free in all"
    of_request: str  # after a number in lists of a request's resources; "" to leave it out
    always: bool = False  # listed there even if it is 0
    least: int = 0  # lowest value that a job may request
    divisible: bool = False  # whether a job may request fractions


#: In the order of snapshots of the state: append new kinds at the end.
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
    """Return a scalar in thousandths, rounded to 3 decimals as Mesos does (Value::Scalar, src/common/values.cpp)."""
    return round(round(value, 3) * _PER_UNIT)


def units(value: int) -> float:
    """Return thousandths as a scalar."""
    return value / _PER_UNIT


class Resources:
    """Amounts of each resource, exact to a thousandth.

    Amounts may be negative: reserved amounts can exceed free ones. GPUs are a count without ids, as in Mesos offers.
    """

    __slots__ = ("_milli",)
    _milli: tuple[int, ...]

    def __init__(
        self, *, cpus: float = 0.0, mem_mib: float = 0.0, gpus: float = 0.0, disk_mib: float = 0.0
    ) -> None:
        self._milli = tuple(map(thousandths, (cpus, mem_mib, gpus, disk_mib)))

    @classmethod
    def of(cls, values: Iterable[float]) -> "Resources":
        """Return resources from amounts in the order of AMOUNTS, as iteration gives them; absent last ones are 0."""
        amounts = [thousandths(value) for value in values]
        return _made((*amounts, *[0] * (len(AMOUNTS) - len(amounts))))

    @classmethod
    def of_milli(cls, milli: Iterable[int]) -> "Resources":
        """Return resources from thousandths of every kind, in the order of AMOUNTS."""
        return _made(tuple(milli))

    @classmethod
    def of_spec(cls, spec: Any) -> "Resources":
        """Return the resources of an object that has a field for each kind, such as a `JobSpec`."""
        return _known(_AMOUNTS_OF(spec))

    @classmethod
    def of_mesos(cls, scalars: Iterable[tuple[str, float]]) -> "Resources":
        """Return the sums of scalars by Mesos name; scalars with other names are ignored."""
        sums = [0] * len(AMOUNTS)
        for name, value in scalars:
            i = _OF_MESOS.get(name)
            if i is not None:
                sums[i] += round(value * _PER_UNIT)  # Mesos sends at most three decimals
        return _made(tuple(sums))

    def mesos_milli(self) -> dict[str, int]:
        """Return thousandths by Mesos name, only of amounts above 0."""
        return {name: value for name, value in zip(_OF_MESOS, self._milli, strict=True) if value > 0}

    def __iter__(self) -> Iterator[float]:
        """Iterate over the amounts in the order of AMOUNTS."""
        return map(units, self._milli)

    def items(self) -> Iterator[tuple[Amount, float]]:
        """Iterate over the kinds whose amount is not 0, with their amounts."""
        return ((amount, value) for amount, value in zip(AMOUNTS, self, strict=True) if value)

    def each(self) -> Iterator[tuple[Amount, "Resources"]]:
        """Iterate over the kinds whose amount is not 0, each with resources that hold this amount alone."""
        for i, (amount, value) in enumerate(zip(AMOUNTS, self._milli, strict=True)):
            if value:
                yield amount, _made((*[0] * i, value, *[0] * (len(AMOUNTS) - i - 1)))

    @property
    def cpus(self) -> float:
        """CPUs, as Mesos counts them."""
        return self._milli[_CPUS] / _PER_UNIT

    @property
    def cpu_milli(self) -> int:
        """CPUs in thousandths."""
        return self._milli[_CPUS]

    @property
    def mem_mib(self) -> float:
        """Memory of the host in MiB."""
        return self._milli[_MEM] / _PER_UNIT

    @property
    def gpus(self) -> int:
        """Number of whole GPUs."""
        return self._milli[_GPUS] // _PER_UNIT

    @property
    def disk_mib(self) -> float:
        """Disk space for sandboxes in MiB."""
        return self._milli[_DISK] / _PER_UNIT

    @property
    def milli(self) -> tuple[int, ...]:
        """All amounts in thousandths, in the order of AMOUNTS."""
        return self._milli

    @property
    def unindexed(self) -> tuple[int, ...]:
        """Thousandths of the kinds for which the arrays of placement have no column."""
        return self._milli[_DISK:]

    def __add__(self, other: "Resources") -> "Resources":
        if other is NOTHING:  # the common case: no card is shared
            return self
        return _made(tuple(map(add, self._milli, other._milli)))

    def __sub__(self, other: "Resources") -> "Resources":
        if other is NOTHING:
            return self
        return _made(tuple(map(sub, self._milli, other._milli)))

    def scaled(self, count: int) -> "Resources":
        """Return these amounts times `count`."""
        if not count:
            return NOTHING
        return _made(tuple([value * count for value in self._milli]))

    def halves(self) -> tuple["Resources", "Resources"]:
        """Return two resources whose sum is these amounts, the first the larger if a half is not whole."""
        half = _made(tuple([value // 2 for value in self._milli]))
        return self - half, half

    def with_gpus(self, gpus: int) -> "Resources":
        """Return these amounts with another number of GPUs."""
        return _made((*self._milli[:_GPUS], gpus * _PER_UNIT, *self._milli[_GPUS + 1 :]))

    def with_cpu_milli(self, milli: int) -> "Resources":
        """Return these amounts with another amount of CPUs, in thousandths."""
        return _made((milli, *self._milli[1:]))

    def least(self, other: "Resources") -> "Resources":
        """Return the smaller of each amount."""
        return _made(tuple(map(min, self._milli, other._milli)))

    def most(self, other: "Resources") -> "Resources":
        """Return the larger of each amount."""
        return _made(tuple(map(max, self._milli, other._milli)))

    @classmethod
    def largest(cls, every: Iterable["Resources"]) -> "Resources":
        """Return the largest of each amount; NOTHING for no resources."""
        return _made(tuple(map(max, zip(*[each._milli for each in every], strict=True))) or NOTHING._milli)

    def covers(self, need: "Resources") -> bool:
        """Return whether each amount is at least that of `need`. Also False if an amount is negative and needs 0."""
        return all(map(ge, self._milli, need._milli))

    def times(self, need: "Resources") -> int:
        """Return how many times `need` fits, by the kinds that it requests; UNLIMITED if it requests nothing."""
        fit = [have // want for have, want in zip(self._milli, need._milli, strict=True) if want > 0]
        return max(min(fit), 0) if fit else UNLIMITED

    def lacking(self, need: "Resources") -> "Resources":
        """Return by kind how much `need` exceeds these amounts."""
        pairs = zip(self._milli, need._milli, strict=True)
        return _made(tuple([want - have if want and want > have else 0 for have, want in pairs]))

    def __bool__(self) -> bool:
        """Return whether any amount is not 0."""
        return any(self._milli)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._milli == other._milli

    def __hash__(self) -> int:
        return hash(self._milli)

    def __repr__(self) -> str:
        amounts = ", ".join(f"{amount.name}={value:g}" for amount, value in self.items())
        return f"Resources({amounts})"


def _made(milli: tuple[int, ...]) -> Resources:
    resources = object.__new__(Resources)
    resources._milli = milli
    return resources


@lru_cache(maxsize=4096)
def _known(values: tuple[float, ...]) -> Resources:
    """Return cached resources: the tasks that one match looks at often have equal ones."""
    return Resources.of(values)


NOTHING: Final = Resources()


def total(every: Iterable[Resources]) -> Resources:
    """Return the sum of resources."""
    amounts = NOTHING
    for resources in every:
        amounts = amounts + resources if amounts is not NOTHING else resources
    return amounts
