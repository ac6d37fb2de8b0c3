"""Utilization samples as a driver keeps them: of short periods, in a ring buffer."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

PERIOD_US: Final = 166_667  # a sixth of a second
MAX: Final = 100
_ALL: Final = 100  # percent
Kernels = Iterable[tuple[int, int]]  # begin and end of each in microseconds; kernels do not overlap


def samples_at(
    now_us: int, processes: Mapping[int, Kernels], *, period_us: int = PERIOD_US
) -> dict[str, Any]:
    """Return the keys for samples and processes in the state of a card, as of a time.

    Args:
        now_us: Time in microseconds.
        processes: Kernels of each process, by pid.
        period_us: Microseconds of one sample.
    """
    last = now_us // period_us
    ends = [number * period_us for number in range(max(last - MAX, 0) + 1, last + 1)]
    begins = (last - MAX) * period_us
    by_pid = {
        pid: [(first, end) for first, end in kernels if end > begins and first < now_us]
        for pid, kernels in processes.items()
    }
    card, of_processes = [], []
    for end in ends:
        parts = {pid: _part_pct(kernels, end - period_us, end) for pid, kernels in by_pid.items()}
        card.append([end, min(sum(parts.values()), _ALL)])
        of_processes += [[pid, end, pct] for pid, pct in parts.items() if pct]
    return {
        "samples": card,
        "process_samples": of_processes,
        "gpu_pct": 0,
        "memory_pct": 0,
        "pids": [*by_pid],
    }


def _part_pct(kernels: Kernels, begins_us: int, ends_us: int) -> int:
    """Return the part of a period in which kernels ran, in whole percent as a driver reports it."""
    busy_us = sum(max(0, min(end, ends_us) - max(begin, begins_us)) for begin, end in kernels)
    return busy_us * _ALL // (ends_us - begins_us)
