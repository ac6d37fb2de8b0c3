"""Percentages of a card's compute that NVIDIA's Multi-Process Service may be told, by the card's architecture. Pure.

A percentage limits the streaming multiprocessors (SMs) that a client sees. On Hopper with some counts of SMs cuBLAS
leaves parts of half-precision products unwritten, and says that it has succeeded: docs/mps.md, "Percentages".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.shares.units import PER_PERCENT

MIN: Final = 1
MAX: Final = 100
#: First and last of each range, ascending.
Ranges = tuple[tuple[int, int], ...]
ALL: Final[Ranges] = ((MIN, MAX),)
#: Measured on an H200 (132 SMs) with driver 580, cuBLAS 12.6.4 to 13.8.1: FP16, BF16 and FP8 are right at these.
HOPPER: Final[Ranges] = ((1, 13), (23, 27), (47, 51), (90, 100))
#: By compute capability; one that is not named may use all. What is not known is treated as the strictest.
BY_CAPABILITY: Final[Mapping[str | None, Ranges]] = MappingProxyType({"9.0": HOPPER, None: HOPPER})


@dataclass(frozen=True, slots=True)
class Cap:
    """The percentage that a share gets. `note`: why it is less than what was asked for; "": it is not."""

    percent: int
    note: str = ""


def allowed(compute_capability: str | None, *, any_percentage: bool = False) -> Ranges:
    """The percentages that a card may be shared out in.

    Args:
        compute_capability: "9.0"; None: not known.
        any_percentage: Whether the host's operator allows all.
    """
    return ALL if any_percentage else BY_CAPABILITY.get(compute_capability, ALL)


def cap_of(compute_milli: int, compute_capability: str | None, *, any_percentage: bool = False) -> Cap | None:
    """The percentage for a share: the next that is allowed, never more than its compute; None: there is none.

    Args:
        compute_milli: Thousandths of the card's compute.
        compute_capability, any_percentage: As of `allowed`.
    """
    asked = min(compute_milli // PER_PERCENT, MAX)
    below = [
        min(asked, last)
        for first, last in allowed(compute_capability, any_percentage=any_percentage)
        if first <= asked
    ]
    if not below:
        return None
    percent = max(below)
    if percent == asked:
        return Cap(percent)
    what = (
        f"compute capability {compute_capability}"
        if compute_capability
        else "cards of unknown compute capability"
    )
    return Cap(percent, f"{percent} % instead of {asked} %: half-precision results are right there on {what}")
