"""Matching of held offers: launches of monitors, cover tasks and jobs, then preemption and return of offers."""

from math import inf

from mesos_gpu.engine.arrays import making as arrays
from mesos_gpu.engine.bookings.choosing import choose_nodes
from mesos_gpu.engine.gpus.unreserving import note_unreserve
from mesos_gpu.engine.match.closing import make_way
from mesos_gpu.engine.match.covering import cover_again
from mesos_gpu.engine.match.launching import launch, launch_monitors
from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.match.offers import balance
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.match.remains import FreeOffers, Launches, Pace
from mesos_gpu.engine.match.search import Search
from mesos_gpu.engine.match.table import Index, table_of
from mesos_gpu.engine.preemption.ahead import make_ahead
from mesos_gpu.engine.preemption.preempting import keep_rooms, possible, reclaim
from mesos_gpu.engine.preemption.recalls import give_up_room
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.secrets import at_hand
from mesos_gpu.engine.tenancy.seats import Admissions, seat
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job


def match(turn: Turn) -> None:
    """Launch what fits, then hold, give back, request or suppress offers as needed."""
    if not turn.state.mesos.connected:
        return
    remains, launches = FreeOffers(turn.state, turn.settings, turn.now), Launches()
    pace = Pace(turn.state, turn.now)
    ledger = Ledger(remains, pace, launches)
    launch_monitors(turn, ledger, remains, launches, pace)
    if not turn.state.mesos.doubtful:
        cover_again(turn, ledger, remains, launches, pace)
    if _is_due(turn) and not turn.state.mesos.doubtful:
        standing = standing_of(turn.state, turn.settings, turn.now)
        backlog = Backlog(turn.state, turn.settings, turn.now, remains.coming, standing=standing)
        if turn.state.calendar.bookings:
            choose_nodes(turn, backlog)
        backlog.keep_first()
        seating = seat(turn, backlog.barriers.may_be_seated)
        turn.state.quota.seats_given = seating.given
        turn.state.match.unmatched = _launch_jobs(turn, ledger, remains, launches, pace, backlog, seating)
        turn.state.match.matched_at = turn.now
    for effect in launches.effects(remains):
        turn.effects.append(effect)
        note_unreserve(turn, effect)
        for offer_id in effect.offer_ids:
            turn.state.cluster.unused.pop(turn.state.cluster.offers[offer_id].agent_id, None)
            turn.state.cluster.drop_offer(offer_id)
    balance(turn, {turn.settings.mesos.role_for(t.job.spec.queue) for t in ledger.takes if t.job is not None})


def _is_due(turn: Turn) -> bool:
    """Return whether a job may be able to start that could not start at the last match."""
    state, last = turn.state, turn.state.match.matched_at
    if state.match.unmatched or turn.now - last >= turn.settings.placing.match_interval_s:
        return True
    ends = (
        state.match.next_moment,
        inf if state.calendar.provisional is None else state.calendar.provisional.next_at,
        *state.gpus.contested.values(),
        *(state.cluster.nodes[agent_id].launch_not_before for agent_id in state.cluster.agents.backed_off),
        *(state.work.jobs[job_id].not_before for _, job_id in state.work.queue),
    )
    return any(last < end <= turn.now for end in ends)


def _is_ready(turn: Turn, backlog: Backlog, job: Job) -> bool:
    """Return whether to look for a place for a job now."""
    if job.not_before > turn.now:
        if job.room_made_at is not None:
            backlog.block(job)  # its launch was lost, and the next one needs this room
        return False
    # A job without its secrets could not start, so no reservation or preemption is made for it.
    return at_hand(turn, job)


def _launch_jobs(
    turn: Turn,
    ledger: Ledger,
    remains: FreeOffers,
    launches: Launches,
    pace: Pace,
    backlog: Backlog,
    seating: Admissions,
) -> bool:
    """Place each pending job or reserve room for it, then make room by preemption.

    Returns:
        Whether a match that follows at once may launch or plan more.
    """
    state, settings = turn.state, turn.settings
    if not state.work.queue:
        return False
    index, may_preempt = table_of(state, settings, turn.now, remains, pace).index, possible(turn)
    if not index.nodes and not may_preempt:
        make_way(turn, backlog)
        return False
    placing = Placing(state, settings, index)
    books = backlog.held, backlog.reservations, backlog.neighbours
    ledger.register(Index(index, remains, pace), placing, *books)
    search = Search(settings, ledger, remains, pace, index, placing, backlog)
    blocked: list[Job] = []
    # Jobs of unknown tasks may run, although the state says that they wait.
    running = {state.work.tasks[task_id].job_id for task_id in state.work.unknown}
    keep_rooms(turn, backlog)
    for job in backlog.jobs():
        if job.id in running or not _is_ready(turn, backlog, job):
            continue
        following: Job | None = job
        while following is not None:
            job, takes = following, search.place(following)
            if takes is None:
                job = give_up_room(turn, backlog, job)
                backlog.block(job)
                blocked.append(job)
                break
            launch(turn, job, takes, remains, launches, seating.at_launch(job, takes))
            following = arrays.following(turn, job)
    make_way(turn, backlog, blocked)
    more = False
    if may_preempt and blocked:
        more = reclaim(turn, backlog, blocked, seating)
        make_ahead(turn, blocked)
    return more or backlog.neighbours.verdicts.is_behind
