"""Versions of the tree of queues, and the checks of a new version."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.sparing import shorten
from mesos_gpu.engine.turn import Turn
from mesos_gpu.engine.versions import take_next
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.checks import Findings, NodeFacts, findings, too_short
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.times.hours import MAX_SPANS, spans_of_year
from mesos_gpu.wire.tenancy import rules

MAX_BACK_S: Final = 600.0  # a clock set back by less leaves the hours of queues as they are
READ_AGAIN: Final = "mesos-gpu queue show"
_MAX_NAMED: Final = 5  # number of queues, and of jobs of each, in an error message


def on_queues_changed(turn: Turn, event: ev.QueuesChanged) -> None:
    """Save a new version of the document of queues, unless it equals the latest one.

    The time at which jobs give back what they hold beyond a guarantee is part of a version only if the event sets it.

    Raises:
        Conflict: Another version was saved since the document was read, or jobs are in queues that would not take
            jobs.
    """
    latest, after_s = turn.state.quota.queues, event.reclaim_after_s
    if event.expected_version == latest.version:
        refuse_homeless(turn.state, turn.settings, event.document)
    until = None if after_s is None else turn.now + after_s
    current = latest if until is not None else replace(latest, reclaim_at=None)
    document = replace(event.document, reclaim_at=until)
    if take_next(turn, current, document, event.expected_version, READ_AGAIN) and until is not None:
        shorten(turn, until)


def keep_hours(turn: Turn) -> None:
    """Begin the next hours of queues once their time has come.

    A clock that is set back by at most `MAX_BACK_S` changes nothing, so that no hours begin twice.
    """
    state, now = turn.state, turn.now
    if state.quota.hours_at - MAX_BACK_S <= now < state.quota.hours_at:
        return
    state.quota.hours_at = now
    if (
        state.quota.made_hours is not None
        and not state.quota.hours.span.since <= now < state.quota.hours.span.until
    ):
        state.quota.made_hours, state.match.unmatched = None, True


def found_of(state: State, settings: Settings, document: QueueDocument, now: float) -> Findings:
    """Check a document, and each tree that its hours make of it within a year, against the known nodes.

    Times of the document are also compared with the interval of the monitors' reports.
    """
    facts = [
        NodeFacts(
            tuple(gpu.model for gpu in node.gpus), node.attributes, node.hostname, node.region, node.zone
        )
        for node in state.cluster.nodes.values()
        if node.gpus
    ]
    found_now = findings(Tree(document), facts)
    late = too_short(document, settings.programs.report_interval_s)
    faults, warnings = dict.fromkeys((*found_now.faults, *late)), dict.fromkeys(found_now.warnings)
    for number, (at, then) in enumerate(spans_of_year(document, now)):
        if number == MAX_SPANS:
            why = f"the hours of queues make more than {MAX_SPANS} different trees of them in a year: share some"
            return Findings((*faults, ("/queues", why)), tuple(warnings))
        of_span = findings(Tree(then), facts)
        since = datetime.fromtimestamp(at, UTC).strftime("with the hours of %Y-%m-%dT%H:%MZ")
        own = [*((fault.path, fault.reason) for fault in rules.faults(then)), *of_span.faults]
        faults |= {(path, f"{why} ({since})"): None for path, why in own if (path, why) not in faults}
        warnings |= dict.fromkeys(of_span.warnings)
    return Findings(_first_of_each(faults), tuple(warnings))


def _first_of_each(faults: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Drop faults of other hours that were already listed for their place with the same reason."""
    first_faults: dict[tuple[str, str], tuple[str, str]] = {}
    for path, why in faults:
        first_faults.setdefault((path, why.partition(" (with the hours")[0]), (path, why))
    return tuple(first_faults.values())


def refuse_homeless(state: State, settings: Settings, document: QueueDocument) -> None:
    """Refuse a document by which queues that have jobs would no longer take jobs.

    Raises:
        Conflict: Some jobs are in such queues; the message names them.
    """
    homeless: dict[str, list[JobId]] = {}
    if document.is_empty:
        return
    leaves, before = leaves_of(document, settings.queue.queue_limits), _leaves_before(state, settings)
    waiting = [(array.id, array.spec.queue) for array in state.work.arrays.values() if array.left]
    live = [(job.id, job.spec.queue) for job in state.work.jobs.values() if not job.state.ended]
    for job_id, queue in (*live, *waiting):
        if queue not in leaves and (before is None or queue in before):
            homeless.setdefault(queue, []).append(job_id)
    if not homeless:
        return
    shown = "; ".join(
        f"{queue} ({len(homeless[queue])}: {', '.join(homeless[queue][:_MAX_NAMED])})"
        for queue in sorted(homeless)[:_MAX_NAMED]
    )
    raise Conflict(
        f"jobs are in queues that the document does not have as leaves: {shown}",
        remedy="keep these queues, or end their jobs first (mesos-gpu kill); "
        "only queues without queues below them take jobs",
    )


def leaves_of(document: QueueDocument, named: Mapping[str, int]) -> Collection[str]:
    """Return the queues that take jobs: those without queues below them.

    Args:
        document: Document of the queues.
        named: Queues that the scheduler's command line limits.
    """
    above = {path.rpartition("/")[0] for path in document.queues}
    return {path for path in (*document.queues, *named, DEFAULT_QUEUE) if path not in above}


def _leaves_before(state: State, settings: Settings) -> Collection[str] | None:
    """Return the queues that take jobs now; None if any name does, as there is no document."""
    queues = state.quota.queues
    return None if queues.is_empty else leaves_of(queues, settings.queue.queue_limits)
