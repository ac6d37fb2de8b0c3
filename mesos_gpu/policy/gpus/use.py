"""Busy time of GPUs from the time-stamped samples of a driver. Pure.

Time that was not observed counts neither as idle nor as busy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.model.nodes.gpu_use import Span, Work

#: Longest gap that a sample can cover. Samples are taken every 1/6 s to 1 s; one after a longer gap does not cover it.
MAX_SAMPLE_US: Final = 2_000_000
_ALL: Final = 100  # percent
Sample = tuple[int, int]  # end in microseconds, and busy part in percent


def span_of(samples: Iterable[Sample], last_us: int) -> tuple[Span, int]:
    """Return the observed and busy time in the samples after a time stamp.

    Args:
        samples: Samples in any order; each covers the time since the one before.
        last_us: Time stamp of the latest sample that was counted.

    Returns:
        Span of observed time, and the time stamp of the latest sample now.
    """
    seen_us = busy_us = 0
    at_us = last_us
    fresh = sorted({end_us: pct for end_us, pct in samples if end_us > last_us and 0 <= pct <= _ALL}.items())
    for index, (end_us, pct) in enumerate(fresh):
        length_us = end_us - at_us
        # After a gap the driver lacks the earlier samples: assume that this one is as long as the next.
        if length_us > MAX_SAMPLE_US:
            length_us = fresh[index + 1][0] - end_us if index + 1 < len(fresh) else 0
            length_us *= length_us <= MAX_SAMPLE_US
        seen_us, busy_us, at_us = seen_us + length_us, busy_us + length_us * pct // _ALL, end_us
    return Span(seen_us // 1000, busy_us // 1000), at_us


def shares_of_span(span: Span, samples: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return how long each process was busy in a span, in milliseconds, by process id.

    Args:
        span: Span of the card.
        samples: Process ids with their busy part in percent. A driver may leave out samples in which a process did
            nothing, so the largest number of samples of any process is taken for each.
    """
    parts: dict[int, list[int]] = {}
    for pid, pct in samples:
        if pid > 0 and 0 <= pct <= _ALL:
            parts.setdefault(pid, []).append(pct)
    if not parts:
        return {}
    times = max(map(len, parts.values()))
    return {pid: span.seen_ms * sum(percents) // (_ALL * times) for pid, percents in parts.items()}


def busy_of(
    span: Span | None, processes: Mapping[int, int] | None, pids: Iterable[int], unknown: Iterable[int] = ()
) -> Span | None:
    """Return the observed and busy time of some processes of a card; None if it cannot be determined.

    They count as busy no longer than the card: while the card as a whole was idle, all of them were, whatever the
    driver reports of processes. Busy time of processes that may or may not be among them counts as not observed.

    Args:
        span: Span of the card.
        processes: Busy milliseconds of each process in the span; None if the driver does not report them.
        pids: Processes to sum up.
        unknown: Processes that may or may not belong to these.
    """
    if span is None or span.busy_ms == 0:
        return span
    if processes is None or not processes:  # a busy card without busy processes is contradictory
        return None
    seen_ms = max(0, span.seen_ms - sum(processes.get(pid, 0) for pid in unknown))
    return Span(seen_ms, min(sum(processes.get(pid, 0) for pid in pids), span.busy_ms, seen_ms))


def counted(work: Work | None, span: Span | None, now: float) -> Work | None:
    """Return the count with a span added; None if nothing was ever observed. `now` is in seconds since the epoch."""
    if span is None:
        return work
    if work is None:
        return Work(now - span.seen_ms / 1000, span.seen_ms, span.busy_ms)
    return replace(work, seen_ms=work.seen_ms + span.seen_ms, busy_ms=work.busy_ms + span.busy_ms)


def idle_since(before: float | None, span: Span | None, now: float) -> float | None:
    """Return the time since which every check found the card idle; None if it is busy, or was not observed.

    Args:
        before: Result of the check before.
        span: Span observed by the latest check.
        now: Seconds since the epoch.
    """
    if span is None or span.seen_ms == 0 or span.busy_ms > 0:
        return None
    return now - span.seen_ms / 1000 if before is None else before
