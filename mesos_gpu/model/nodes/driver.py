"""Versions of NVIDIA drivers: their order, and the newest CUDA that each branch runs."""

import re
from functools import lru_cache
from typing import Final

Version = tuple[int, ...]

CUDA_LABEL: Final = "com.nvidia.cuda.version"  # label of images and of jobs

#: First driver branch for each CUDA version, the oldest first. Source: CUDA Toolkit release notes, table "CUDA Toolkit
#: and Corresponding Driver Versions", of 13.3 and its archive; 12.7, which had no toolkit, is what driver 565 reports.
#: The table is for Linux on x86_64. It also holds for arm64-sbsa, for which the notes give the same driver versions,
#: and for POWER, for which they list the same toolkits up to CUDA 12.4 and no branches.
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
MINIMUM: Final = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}")  # form of a minimum version in a job
VERSION: Final = re.compile(r"[0-9]{1,9}(?![0-9])(?:\.[0-9]{1,9}(?![0-9]))*")


@lru_cache(maxsize=1024)
def version_of(text: str | None) -> Version | None:
    """Return the numbers at the beginning of a text, as drivers may append others ("575.57.08-open"); None without
    any."""
    numbers = VERSION.match(text or "")
    return tuple(map(int, numbers[0].split("."))) if numbers else None


def order(left: Version, right: Version) -> int:
    """Return -1, 0 or 1 if the left version is older, equal or newer; missing parts count as 0."""
    size = max(len(left), len(right))
    a, b = (v + (0,) * (size - len(v)) for v in (left, right))
    return (a > b) - (a < b)


def as_new_as(driver: str | None, least: str | None) -> bool:
    """Return whether a driver is at least as new as a minimum version. Without minimum True; an unknown driver is not.

    Raises:
        ValueError: `least` is not a version.
    """
    if least is None:
        return True
    has, wanted = version_of(driver), version_of(least)
    if wanted is None:
        raise ValueError(f"{least!r} is not a driver version; give numbers joined by dots, such as 535.104")
    return has is not None and order(has, wanted) >= 0


def newer_of(left: str | None, right: str | None) -> str | None:
    """Return the newer of two minimum versions; None stands for no minimum."""
    if left is None or right is None:
        return left or right
    return left if as_new_as(left, right) else right


def cuda_of(driver: str | None) -> Version | None:
    """Return the newest CUDA version that a driver runs, by its branch; None if not known."""
    version = version_of(driver)
    if version is None:
        return None
    return next((cuda for branch, cuda in reversed(CUDA_OF_BRANCH) if branch <= version[0]), None)


def branch_for(cuda: str) -> str | None:
    """Return the first driver branch that runs a CUDA version ("12.2.140" gives "535").

    None if the text is not a version, or is newer than all in the table.
    """
    wanted = version_of(cuda)
    if wanted is None:
        return None
    return next((str(branch) for branch, runs in CUDA_OF_BRANCH if order(runs, wanted[:2]) >= 0), None)
