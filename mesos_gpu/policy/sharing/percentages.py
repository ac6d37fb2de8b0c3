"""Percentages of compute that are safe to set with NVIDIA's Multi-Process Service, by architecture. Pure.

A percentage limits the streaming multiprocessors (SMs) that a client sees. On Hopper with some counts of SMs cuBLAS
leaves parts of half-precision products unwritten, yet reports success: docs/mps.md, "Percentages".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.shares.units import PER_PERCENT

MIN: Final = 1
MAX: Final = 100
#: First and last percentage of each range, ascending.
Ranges = tuple[tuple[int, int], ...]
ALL: Final[Ranges] = ((MIN, MAX),)
#: Measured on an H200 (132 SMs), driver 580, cuBLAS 12.6.4 to 13.8.1: FP16, BF16, FP8 results are correct at these.
HOPPER: Final[Ranges] = ((1, 13), (23, 27), (47, 51), (90, 100))
#: Ranges by compute capability; all for one not named here, and the strictest for an unknown one (None).
BY_CAPABILITY: Final[Mapping[str | None, Ranges]] = MappingProxyType({"9.0": HOPPER, None: HOPPER})


@dataclass(frozen=True, slots=True)
class Cap:
    """Percentage that a share gets.

    Attributes:
        percent: The percentage, 1 to 100.
        note: Reason why it is less than requested; "" if it is not.
    """

    percent: int
    note: str = ""


def allowed(compute_capability: str | None, *, any_percentage: bool = False) -> Ranges:
    """Return the percentages that are safe on a card.

    Args:
        compute_capability: Compute capability such as "9.0"; None if not known.
        any_percentage: Whether the host's operator allows all percentages.
    """
    return ALL if any_percentage else BY_CAPABILITY.get(compute_capability, ALL)


def cap_of(compute_milli: int, compute_capability: str | None, *, any_percentage: bool = False) -> Cap | None:
    """Return the largest safe percentage within a share's compute; None if even the smallest exceeds it.

    Args:
        compute_milli: Thousandths of the card's compute.
        compute_capability: Compute capability such as "9.0"; None if not known.
        any_percentage: Whether the host's operator allows all percentages.
    """
    requested = min(compute_milli // PER_PERCENT, MAX)
    below = [
        min(requested, last)
        for first, last in allowed(compute_capability, any_percentage=any_percentage)
        if first <= requested
    ]
    if not below:
        return None
    percent = max(below)
    if percent == requested:
        return Cap(percent)
    cards = (
        f"compute capability {compute_capability}"
        if compute_capability
        else "cards of unknown compute capability"
    )
    return Cap(
        percent, f"{percent} % instead of {requested} %: half-precision results are right there on {cards}"
    )
