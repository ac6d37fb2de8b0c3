"""Versions of the tree of queues, and what they are held against."""

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

MAX_BACK_S: Final = 600.0  # that a clock may be set back, and hours stay as they are
READ_AGAIN: Final = "mesos-gpu queue show"
_MAX_NAMED: Final = 5  # queues, and jobs of each, that a refusal names


def on_queues_changed(turn: Turn, event: ev.QueuesChanged) -> None:
    """Take it as the next version, unless it says what the latest says, and not when jobs give back what they hold
    beyond it.

    Raises:
        Conflict: Somebody else has changed it since it was read, or jobs would be in no leaf.
    """
    latest, after_s = turn.state.quota.queues, event.reclaim_after_s
    if event.expected_version == latest.version:
        refuse_homeless(turn.state, turn.settings, event.document)
    until = None if after_s is None else turn.now + after_s
    said = latest if until is not None else replace(latest, reclaim_at=None)
    document = replace(event.document, reclaim_at=until)
    if take_next(turn, said, document, event.expected_version, READ_AGAIN) and until is not None:
        shorten(turn, until)


def keep_hours(turn: Turn) -> None:
    """Let the hours of queues be as they are now. A clock that is set back a little lets none come twice: they stay as
    they were until it has caught up."""
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
    """Hold a document, and what hours make of it in the year that follows, against the nodes that are known, and how
    often their monitors report."""
    facts = [
        NodeFacts(
            tuple(gpu.model for gpu in node.gpus), node.attributes, node.hostname, node.region, node.zone
        )
        for node in state.cluster.nodes.values()
        if node.gpus
    ]
    made = findings(Tree(document), facts)
    late = too_short(document, settings.programs.report_interval_s)
    faults, warnings = dict.fromkeys((*made.faults, *late)), dict.fromkeys(made.warnings)
    for number, (at, then) in enumerate(spans_of_year(document, now)):
        if number == MAX_SPANS:
            why = f"the hours of queues make more than {MAX_SPANS} different trees of them in a year: share some"
            return Findings((*faults, ("/queues", why)), tuple(warnings))
        of_span = findings(Tree(then), facts)
        since = datetime.fromtimestamp(at, UTC).strftime("with the hours of %Y-%m-%dT%H:%MZ")
        own = [*((each.path, each.reason) for each in rules.faults(then)), *of_span.faults]
        faults |= {(path, f"{why} ({since})"): None for path, why in own if (path, why) not in faults}
        warnings |= dict.fromkeys(of_span.warnings)
    return Findings(_first_of_each(faults), tuple(warnings))


def _first_of_each(faults: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Faults without those that were told of the same place and hold in other hours, too."""
    told: dict[tuple[str, str], tuple[str, str]] = {}
    for path, why in faults:
        told.setdefault((path, why.partition(" (with the hours")[0]), (path, why))
    return tuple(told.values())


def refuse_homeless(state: State, settings: Settings, document: QueueDocument) -> None:
    """Refuse a document by which a queue takes no jobs any more while some are in it.

    Raises:
        Conflict: Names them.
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
        remedy="keep these queues, or end their jobs first (mesos-gpu kill); jobs are in queues without others below",
    )


def leaves_of(document: QueueDocument, named: Mapping[str, int]) -> Collection[str]:
    """The queues that take jobs. `named`: those that the scheduler's command line has limits of."""
    above = {path.rpartition("/")[0] for path in document.queues}
    return {path for path in (*document.queues, *named, DEFAULT_QUEUE) if path not in above}


def _leaves_before(state: State, settings: Settings) -> Collection[str] | None:
    """The queues that take jobs now; None: all names do."""
    queues = state.quota.queues
    return None if queues.is_empty else leaves_of(queues, settings.queue.queue_limits)
