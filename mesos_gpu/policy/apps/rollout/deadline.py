"""Deadline of a deployment: whether an app makes progress in time. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.apps.app import GpuOptions
from mesos_gpu.model.apps.rollout import Progress

OVERDUE: Final = "overdue: "  # prefix of messages about an overdue deployment
DEFAULT_S: Final = 600  # deadline of an app with `auto_revert` that names none


@dataclass(frozen=True, slots=True)
class Terms:
    """Deadline of an app, and whether its deployment is undone when that passes.

    Attributes:
        deadline_s: Seconds without progress after which the deployment is overdue.
        reverts: Whether an overdue deployment is undone.
    """

    deadline_s: int
    reverts: bool


def terms_of(options: GpuOptions) -> Terms | None:
    """Return the deadline that an app requests; None if its deployments may take any time."""
    if options.progress_deadline_s is None and not options.auto_revert:
        return None
    return Terms(options.progress_deadline_s or DEFAULT_S, options.auto_revert)


def progress_after(
    before: Progress | None, count: int, terms: Terms, *, now: float, from_s: float
) -> Progress:
    """Return the progress of a deployment of an app, marked overdue if it has stalled for too long.

    Args:
        before: Progress before; None if the step has just begun.
        count: Progress of the app now, as `moves.progress` counts it.
        terms: Deadline of the app.
        now: Seconds since the epoch.
        from_s: End of the time in which nothing could be done, as no master was connected.
    """
    if before is None or count > before.count:
        return Progress(count, now)
    late = now - max(before.at, from_s) >= terms.deadline_s
    return replace(before, overdue=True) if late else before


def overdue_words(terms: Terms, id: str, waiting: str) -> str:
    """Return the message that the deployment `id` is overdue for an app, with what it waits for."""
    then = "it is undone" if terms.reverts else f"to undo it: mesos-gpu deployment stop {id}"
    why = f"; {waiting}" if waiting else ""
    return f"{OVERDUE}no progress for {terms.deadline_s} s (progress_deadline_s), {then}{why}"


def overdue(progress: Mapping[str, Progress]) -> tuple[str, ...]:
    """Return the apps whose deadline has passed, in order."""
    return tuple(sorted(id for id, app_progress in progress.items() if app_progress.overdue))
