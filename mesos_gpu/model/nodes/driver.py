"""Versions of NVIDIA's driver: their order, and which CUDA each branch runs."""

import re
from functools import lru_cache
from typing import Final

Version = tuple[int, ...]

CUDA_LABEL: Final = "com.nvidia.cuda.version"  # of images, and of jobs

#: The first branch that runs a CUDA, the oldest first. Source: the CUDA Toolkit's release notes, table "CUDA Toolkit
#: and Corresponding Driver Versions", of 13.3 and its archive; 12.7, which had no toolkit, is what driver 565 reports.
#: The table is of Linux on x86_64. The notes give arm64-sbsa the same driver version, and POWER the same toolkits up
#: to CUDA 12.4, and no branches of their own: it serves both.
CUDA_OF_BRANCH: Final = (
    (346, (7, 0)),
    (352, (7, 5)),
    (367, (8, 0)),
    (384, (9, 0)),
    (390, (9, 1)),
    (396, (9, 2)),
    (410, (10, 0)),
    (418, (10, 1)),
    (440, (10, 2)),
    (450, (11, 0)),
    (455, (11, 1)),
    (460, (11, 2)),
    (465, (11, 3)),
    (470, (11, 4)),
    (495, (11, 5)),
    (510, (11, 6)),
    (515, (11, 7)),
    (520, (11, 8)),
    (525, (12, 0)),
    (530, (12, 1)),
    (535, (12, 2)),
    (545, (12, 3)),
    (550, (12, 4)),
    (555, (12, 5)),
    (560, (12, 6)),
    (565, (12, 7)),
    (570, (12, 8)),
    (575, (12, 9)),
    (580, (13, 0)),
    (590, (13, 1)),
    (595, (13, 2)),
    (610, (13, 3)),
)
MINIMUM: Final = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}")  # what a job may ask for
VERSION: Final = re.compile(r"[0-9]{1,9}(?![0-9])(?:\.[0-9]{1,9}(?![0-9]))*")


@lru_cache(maxsize=1024)
def version_of(text: str | None) -> Version | None:
    """The numbers at its beginning: drivers may have more behind them ("575.57.08-open")."""
    numbers = VERSION.match(text or "")
    return tuple(map(int, numbers[0].split("."))) if numbers else None


def order(left: Version, right: Version) -> int:
    """Below, at or above 0; missing parts are 0."""
    size = max(len(left), len(right))
    a, b = (v + (0,) * (size - len(v)) for v in (left, right))
    return (a > b) - (a < b)


def as_new_as(driver: str | None, least: str | None) -> bool:
    """Whether a driver will do where `least` is the oldest that will; one that is not known will not.

    Raises:
        ValueError: `least` is no version.
    """
    if least is None:
        return True
    has, wanted = version_of(driver), version_of(least)
    if wanted is None:
        raise ValueError(f"{least!r} is no version of a driver")
    return has is not None and order(has, wanted) >= 0


def newer_of(left: str | None, right: str | None) -> str | None:
    """The newer of two minimums, where None is none."""
    if left is None or right is None:
        return left or right
    return left if as_new_as(left, right) else right


def cuda_of(driver: str | None) -> Version | None:
    """The newest CUDA that a driver runs, by its branch; None: not known."""
    version = version_of(driver)
    if version is None:
        return None
    return next((cuda for branch, cuda in reversed(CUDA_OF_BRANCH) if branch <= version[0]), None)


def branch_for(cuda: str) -> str | None:
    """The first branch that runs a CUDA: "12.2.140" gives "535"; None: no version, or newer than the table."""
    wanted = version_of(cuda)
    if wanted is None:
        return None
    return next((str(branch) for branch, runs in CUDA_OF_BRANCH if order(runs, wanted[:2]) >= 0), None)
