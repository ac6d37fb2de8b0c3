"""Deadline of a deployment: whether an app of it comes nearer to its aim in time. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.apps.app import GpuOptions
from mesos_gpu.model.apps.rollout import Progress

OVERDUE: Final = "overdue: "  # begins what is said of an overdue deployment
DEFAULT_S: Final = 600  # of an app with `auto_revert` that names no deadline


@dataclass(frozen=True, slots=True)
class Terms:
    """Deadline of an app, and whether its deployment is undone when that passes."""

    deadline_s: int  # without progress
    reverts: bool


def terms_of(options: GpuOptions) -> Terms | None:
    """Return the terms that an app asks for, or None if its deployments may take any time."""
    if options.progress_deadline_s is None and not options.auto_revert:
        return None
    return Terms(options.progress_deadline_s or DEFAULT_S, options.auto_revert)


def progress_after(
    before: Progress | None, count: int, terms: Terms, *, now: float, from_s: float
) -> Progress:
    """Return how far a deployment has brought an app.

    Args:
        before: The progress before; None if the step has just begun.
        count: The app's progress now, as `moves.progress` counts it.
        terms: The app's deadline.
        now: Seconds since the epoch.
        from_s: The time before which nothing could be done, as no master was connected.
    """
    if before is None or count > before.count:
        return Progress(count, now)
    late = now - max(before.at, from_s) >= terms.deadline_s
    return replace(before, overdue=True) if late else before


def overdue_words(terms: Terms, id: str, waiting: str) -> str:
    """Say that the deployment `id` is overdue for an app, and what it waits for."""
    then = "it is undone" if terms.reverts else f"to undo it: mesos-gpu deployment stop {id}"
    why = f"; {waiting}" if waiting else ""
    return f"{OVERDUE}no progress for {terms.deadline_s} s (progress_deadline_s), {then}{why}"


def overdue(progress: Mapping[str, Progress]) -> tuple[str, ...]:
    """Return the apps whose deadline has passed, in order."""
    return tuple(sorted(id for id, each in progress.items() if each.overdue))
