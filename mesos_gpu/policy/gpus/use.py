"""Time at work, from the time stamps of a driver's samples. Pure. What was not seen counts as nothing: neither as idle
nor as busy."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mesos_gpu.model.nodes.gpu_use import Span, Work

MAX_SAMPLE_US: Final = (
    2_000_000  # a sample is of 1/6 s to 1 s; one that follows a longer gap says nothing of it
)
_ALL: Final = 100  # percent
Sample = tuple[int, int]  # end, in microseconds; part of it at work, in percent


def span_of(samples: Iterable[Sample], last_us: int) -> tuple[Span, int]:
    """What the samples after a time stamp tell.

    Args:
        samples: In any order; each is of the time since the one before.
        last_us: Time stamp of the latest sample that was counted.

    Returns:
        The span, and the time stamp of the latest sample now.
    """
    seen_us = busy_us = 0
    at_us = last_us
    fresh = sorted({end_us: pct for end_us, pct in samples if end_us > last_us and 0 <= pct <= _ALL}.items())
    for index, (end_us, pct) in enumerate(fresh):
        length_us = end_us - at_us
        if (
            length_us > MAX_SAMPLE_US
        ):  # what was before it the driver has forgotten: it is as long as the next
            length_us = fresh[index + 1][0] - end_us if index + 1 < len(fresh) else 0
            length_us *= length_us <= MAX_SAMPLE_US
        seen_us, busy_us, at_us = seen_us + length_us, busy_us + length_us * pct // _ALL, end_us
    return Span(seen_us // 1000, busy_us // 1000), at_us


def shares_of_span(span: Span, samples: Iterable[tuple[int, int]]) -> dict[int, int]:
    """For how long each process was at work in a span, in milliseconds.

    Args:
        span: Of the card.
        samples: Process, and its part in percent. A driver may leave out samples in which a process did nothing: so as
            many count of each as there are of the one that has most.
    """
    parts: dict[int, list[int]] = {}
    for pid, pct in samples:
        if pid > 0 and 0 <= pct <= _ALL:
            parts.setdefault(pid, []).append(pct)
    if not parts:
        return {}
    times = max(map(len, parts.values()))
    return {pid: span.seen_ms * sum(each) // (_ALL * times) for pid, each in parts.items()}


def busy_of(
    span: Span | None, processes: Mapping[int, int] | None, pids: Iterable[int], unknown: Iterable[int] = ()
) -> Span | None:
    """The span of some processes of a card; None: nobody can say.

    They were at work no longer than the card was: where it as a whole did nothing, none of them did anything, whatever
    the driver tells of processes. Time in which a process worked that may be one of them, or not, counts as not seen.

    Args:
        span: Of the card.
        processes: For how long each was at work in it, in milliseconds; None: the driver does not tell.
        pids: Which are meant.
        unknown: Those that may be meant, or not.
    """
    if span is None or span.busy_ms == 0:
        return span
    if processes is None or not processes:  # it was at work, and by nobody: the two do not go together
        return None
    seen_ms = max(0, span.seen_ms - sum(processes.get(pid, 0) for pid in unknown))
    return Span(seen_ms, min(sum(processes.get(pid, 0) for pid in pids), span.busy_ms, seen_ms))


def counted(work: Work | None, span: Span | None, now: float) -> Work | None:
    """The count with a span more; None: there was never one to count. `now`: seconds since the epoch."""
    if span is None:
        return work
    if work is None:
        return Work(now - span.seen_ms / 1000, span.seen_ms, span.busy_ms)
    return replace(work, seen_ms=work.seen_ms + span.seen_ms, busy_ms=work.busy_ms + span.busy_ms)


def idle_since(before: float | None, span: Span | None, now: float) -> float | None:
    """Since when it has done nothing, as far as all looks tell; None: it works, or a look told nothing.

    Args:
        before: What this was at the look before.
        span: What the latest look told.
        now: Seconds since the epoch.
    """
    if span is None or span.seen_ms == 0 or span.busy_ms > 0:
        return None
    return now - span.seen_ms / 1000 if before is None else before
