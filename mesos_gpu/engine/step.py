"""The scheduler as a function: `step(state, event, now)` changes the state and returns the effects.

The state is changed in place, by this function only, on one thread: a copy for each of thousands of events
would cost more than all decisions. The function reads no clock and draws no chance, so the same events with
the same times give the same effects.
"""

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any, Final, NamedTuple, get_args

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.access.document import on_access_changed
from mesos_gpu.engine.access.tokens import on_token_created, on_token_revoked, on_token_used
from mesos_gpu.engine.apps.delays import on_delay_reset
from mesos_gpu.engine.apps.deploying import (
    on_apps_changed,
    on_deployment_deleted,
    on_health_found,
    on_readiness_found,
)
from mesos_gpu.engine.apps.splits import on_split_dropped, on_split_set
from mesos_gpu.engine.arrays import making as arrays
from mesos_gpu.engine.bookings import making as bookings
from mesos_gpu.engine.bookings.documents import refuse_unusable
from mesos_gpu.engine.calendar.booked import check_booking
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.engine.effects import RANK, Effect
from mesos_gpu.engine.gpus import role
from mesos_gpu.engine.gpus.cards import on_reset_requested
from mesos_gpu.engine.gpus.drains import on_drain, on_undrain
from mesos_gpu.engine.match.matching import match
from mesos_gpu.engine.match.offers import on_offers
from mesos_gpu.engine.queue import secrets
from mesos_gpu.engine.queue.admitting import admitted
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.queue.quota import check_job
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import PARTS, State
from mesos_gpu.engine.tasks import volumes
from mesos_gpu.engine.tasks.evictions import end_for_good
from mesos_gpu.engine.tasks.named_volumes import claim, on_volume_removed
from mesos_gpu.engine.tasks.notices import on_checkpoint_told
from mesos_gpu.engine.tasks.resizing import on_resize_requested, on_resize_withdrawn
from mesos_gpu.engine.tasks.statuses import on_status
from mesos_gpu.engine.tasks.unknown import on_adopted, on_killed, on_listed
from mesos_gpu.engine.tenancy import accounts, budgets, idle
from mesos_gpu.engine.tenancy.document import keep_hours, on_queues_changed
from mesos_gpu.engine.tenancy.granted import settle
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.engine.upkeep import begin_reconciliation, on_tick
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.saves import SaveFramework


class Handler(NamedTuple):
    """Handler of a kind of event.

    Attributes:
        take: Function that applies the event.
        changes: Names of the parts of the state that it may change. Derived fields do not count, as each part updates
            its own.
    """

    take: Callable[[Turn, Any], None]
    changes: Set[str]


def handle(turn: Turn, event: ev.Event) -> None:
    """Apply an event by its handler."""
    HANDLERS[type(event)].take(turn, event)


def step(
    state: State,
    event: ev.Event,
    now: float,
    settings: Settings,
    *,
    handle: Callable[[Turn, ev.Event], None] = handle,
) -> list[Effect]:
    """Apply one event to the state.

    Args:
        state: State of the engine, changed in place.
        event: Event to apply.
        now: Time of the event, in seconds since the epoch.
        settings: Settings of the scheduler.
        handle: Function that applies the event by its handler; tests may replace it to watch what the handler
            changes.

    Returns:
        Effects in the order of `effects.ORDER`.

    Raises:
        NotFound, Conflict, NotAccepted, TooMuch: A request cannot be granted; the state has not changed.
    """
    turn = Turn(state, settings, now)
    keep_hours(turn)
    state.match.unmatched |= type(event) not in _NO_NEWS
    handle(turn, event)
    arrays.refill(turn)
    settle(turn)
    budgets.keep(turn, accounts.keep(turn))
    return sorted(turn.effects, key=lambda effect: RANK[type(effect)])


def _on_registered(turn: Turn, event: ev.Registered) -> None:
    """Reset what depends on the subscription, store the framework's id, and begin reconciliation."""
    state = turn.state
    state.cluster.drop_offers()
    state.mesos.connected, state.mesos.master_url, state.mesos.suppressed = True, event.master_url, False
    state.mesos.roles.asked = None  # a new subscription gets offers for all roles
    state.mesos.registered_at = state.mesos.swept_at = turn.now
    state.mesos.listing_at = 0.0
    if state.mesos.framework_id != event.framework_id:
        state.mesos.framework_id = event.framework_id
        turn.effects.append(SaveFramework(event.framework_id))
    begin_reconciliation(turn)


def _on_disconnected(turn: Turn, _: ev.Disconnected) -> None:
    """Drop all offers, which are void without the subscription."""
    turn.state.mesos.connected = False
    turn.state.cluster.drop_offers()


def _on_framework_removed(turn: Turn, _: ev.FrameworkRemoved) -> None:
    """Forget the framework's id; tasks stay, as reconciliation after the next start reports each of them as gone."""
    turn.state.mesos.connected = False
    turn.state.cluster.drop_offers()
    turn.state.mesos.framework_id = None
    turn.effects.append(SaveFramework(""))


def _on_rescinded(turn: Turn, event: ev.OfferRescinded) -> None:
    turn.state.cluster.drop_offer(event.offer_id)


def _on_agent_lost(turn: Turn, event: ev.AgentLost) -> None:
    """Mark an agent as lost, and drop its offers."""
    node = turn.state.cluster.nodes.get(event.agent_id)
    turn.state.cluster.unused.pop(event.agent_id, None)
    for offer in [o for o in turn.state.cluster.offers.values() if o.agent_id == event.agent_id]:
        turn.state.cluster.drop_offer(offer.id)
    if node is not None and node.lost_at is None:
        turn.put_node(replace(node, lost_at=turn.now))


def _on_submitted(turn: Turn, event: ev.JobSubmitted) -> None:
    """Check and queue a submitted job or array."""
    check_job(turn.state, turn.settings, event.spec, event.owner)
    check_booking(turn.state, event.spec, event.owner)
    charged_to = event.owner or event.spec.user or ""
    spec = admitted(turn.state, turn.settings, event.spec, charged_to)
    spec = claim(turn, event.job_id, spec, charged_to)
    if spec.array is not None:
        arrays.take_in(turn, event.job_id, spec, event.owner)
        return
    job = Job(
        id=event.job_id,
        spec=spec,
        submitted_at=turn.now,
        sequence=turn.state.work.next_sequence,
        message="queued",
        owner=event.owner,
    )
    turn.put_job(job)


def _on_kill_requested(turn: Turn, event: ev.KillRequested) -> None:
    """End a job at a user's request; one that has ended, or is being ended, stays as it is."""
    if event.wipe:
        volumes.wipe(turn, event.job_id)
    job = turn.state.work.jobs.get(event.job_id)
    if job is None or job.state.ended or job.kill_requested:
        return
    if event.wipe:
        job = turn.put_job(replace(job, nameless=True))
    end_for_good(turn, job, "kill requested", unlaunched="killed before it was launched")


def _on_array_kill_requested(turn: Turn, event: ev.ArrayKillRequested) -> None:
    """End tasks of an array: those without a job, and jobs that are not being ended already."""
    array = turn.state.work.arrays.get(event.array_id)
    if array is None or array.ended_at is not None:
        return
    positions = arrays.positions_of(array, event)
    arrays.kill_left(turn, array, positions)
    for job in arrays.members_of(turn, array, positions):
        if not job.kill_requested:
            end_for_good(turn, job, "kill requested", unlaunched="killed before it was launched")


def _on_queues_changed(turn: Turn, event: ev.QueuesChanged) -> None:
    """Save a new document of queues, unless it makes a booking unusable."""
    if event.expected_version == turn.state.quota.queues.version:
        refuse_unusable(turn.state, event.document)
    on_queues_changed(turn, event)


def _on_match(turn: Turn) -> None:
    """Run a match, and adjust the drafts of arrays after it."""
    match(turn)
    if turn.state.match.matched_at == turn.now:
        arrays.on_matched(turn)


def _on_resize_requested(turn: Turn, event: ev.ResizeRequested) -> None:
    """Request other shares for a job, beside the reservations of pending jobs."""
    forecast = Forecast(turn.state, turn.settings, turn.now, standing_of(turn.state, turn.settings, turn.now))
    on_resize_requested(turn, event, lambda: forecast.before(None), forecast.backlog.barriers.wait_of_lenders)


#: Events that let a job start only through the jobs, tasks, nodes and GPUs that they change.
_NO_NEWS: Final = (
    ev.Tick,
    ev.Match,
    ev.StatusArrived,
    ev.CheckpointTold,
    ev.KeepAsked,
    ev.KeepWithdrawn,
    ev.VolumeRemoved,
    ev.UnknownKilled,
    ev.HealthFound,
    ev.ReadinessFound,
    ev.SplitSet,
    ev.SplitDropped,
    ev.AccessChanged,
    ev.TokenCreated,
    ev.TokenRevoked,
    ev.TokenUsed,
)
#: Parts that a change of a job changes: it is counted in its queue, and may be an instance of an app.
_OF_JOBS: Final = frozenset({"work", "quota", "apps", "match"})
#: Parts that a change of a task and its job changes: the task holds GPUs.
_OF_TASKS: Final = _OF_JOBS | {"gpus"}
_ALL: Final = frozenset(PARTS)
HANDLERS: Final[dict[type, Handler]] = {
    ev.Registered: Handler(_on_registered, {"cluster", "mesos"}),
    ev.Disconnected: Handler(_on_disconnected, {"cluster", "mesos"}),
    ev.FrameworkRemoved: Handler(_on_framework_removed, {"cluster", "mesos"}),
    ev.OffersArrived: Handler(lambda turn, event: on_offers(turn, event.offers), {"cluster", "match"}),
    ev.OfferRescinded: Handler(_on_rescinded, {"cluster"}),
    ev.StatusArrived: Handler(
        lambda turn, event: on_status(turn, event.status), _OF_TASKS | {"cluster", "mesos", "ledger"}
    ),
    ev.SecretsRead: Handler(secrets.on_read, {"work"}),
    ev.RoleRead: Handler(role.on_read, {"mesos"}),
    ev.TasksListed: Handler(lambda turn, event: on_listed(turn, event.tasks), _OF_TASKS | {"mesos"}),
    ev.UnknownAdopted: Handler(lambda turn, event: on_adopted(turn, event.task_id), _OF_TASKS),
    ev.UnknownKilled: Handler(lambda turn, event: on_killed(turn, event.task_id), {"work", "match"}),
    ev.AgentLost: Handler(_on_agent_lost, {"cluster", "match"}),
    ev.JobSubmitted: Handler(_on_submitted, {"work", "quota", "match"}),
    ev.KillRequested: Handler(_on_kill_requested, _OF_TASKS),
    ev.ArrayKillRequested: Handler(_on_array_kill_requested, _OF_TASKS),
    ev.ResizeRequested: Handler(_on_resize_requested, _OF_TASKS),
    ev.ResizeWithdrawn: Handler(on_resize_withdrawn, _OF_TASKS),
    ev.CheckpointTold: Handler(on_checkpoint_told, {"work", "apps"}),
    ev.DrainRequested: Handler(on_drain, {"cluster", "gpus", "match"}),
    ev.UndrainRequested: Handler(on_undrain, {"cluster", "gpus", "match"}),
    ev.ResetRequested: Handler(on_reset_requested, {"gpus", "match"}),
    ev.AppsChanged: Handler(on_apps_changed, {"apps", "work"}),
    ev.DeploymentDeleted: Handler(on_deployment_deleted, {"apps"}),
    ev.DelayReset: Handler(on_delay_reset, _OF_JOBS),
    ev.HealthFound: Handler(on_health_found, _OF_TASKS),
    ev.ReadinessFound: Handler(on_readiness_found, {"work", "apps"}),
    ev.SplitSet: Handler(on_split_set, {"apps"}),
    ev.SplitDropped: Handler(on_split_dropped, {"apps"}),
    ev.AccessChanged: Handler(on_access_changed, {"rights"}),
    ev.QueuesChanged: Handler(_on_queues_changed, {"quota", "work", "apps"}),
    ev.BudgetGranted: Handler(budgets.on_granted, _OF_TASKS | {"ledger"}),
    ev.BookingMade: Handler(bookings.on_made, {"calendar", "match"}),
    ev.BookingChanged: Handler(bookings.on_changed, _OF_TASKS | {"calendar"}),
    ev.BookingCancelled: Handler(bookings.on_cancelled, _OF_TASKS | {"calendar"}),
    ev.KeepAsked: Handler(idle.on_keep_asked, _OF_TASKS),
    ev.KeepWithdrawn: Handler(idle.on_keep_withdrawn, {"work"}),
    ev.VolumeRemoved: Handler(on_volume_removed, {"work"}),
    ev.TokenCreated: Handler(on_token_created, {"rights"}),
    ev.TokenRevoked: Handler(on_token_revoked, {"rights"}),
    ev.TokenUsed: Handler(on_token_used, {"rights"}),
    ev.Tick: Handler(lambda turn, _: on_tick(turn), _ALL),
    ev.Match: Handler(lambda turn, _: _on_match(turn), _ALL),
}
see_complete("engine.step.HANDLERS", HANDLERS, get_args(ev.Event))
