"""Who would be stopped for whom under another tree of queues: it is tried on a copy of the state."""

from dataclasses import replace
from itertools import islice
from typing import Final

from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.forecast import Forecast, offered_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import seat
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import RoomToCome
from mesos_gpu.model.queue_plan import PlannedReclaim
from mesos_gpu.model.tenancy import QueueDocument

_MOST_LOOKED_AT: Final = 1000  # jobs of the line: it is done on the engine's thread


def reclaims_of(
    state: State, settings: Settings, document: QueueDocument, now: float
) -> tuple[PlannedReclaim, ...]:
    """Room that would be made for jobs that wait, if a document were the next version and those for whom it leaves no
    room gave back what they hold at once.

    Args:
        state: The engine's; it stays as it is.
        settings: The operator's.
        document: The next version.
        now: Seconds since the epoch.
    """
    trial = STATES.duplicate(state)
    trial.put(replace(document, version=state.quota.queues.version + 1, at=now, reclaim_at=now))
    for job in state.work.jobs.values():
        if job.spared_until > now:
            trial.put(replace(job, spared_until=now))
    standing = give_seats(trial, settings, now)
    coming = Coming(trial, settings, now)
    forecast = Forecast(trial, settings, now, standing, coming)
    rooms = [(job, coming.of(forecast.backlog, job)) for job in islice(forecast.jobs, _MOST_LOOKED_AT)]
    first: dict[RoomToCome, Job] = {}  # others have room beside it
    for job, room in rooms:
        if room is not None:
            first.setdefault(room, job)
    return tuple(PlannedReclaim(job.id, job.spec.queue, room) for room, job in first.items())


def give_seats(trial: State, settings: Settings, now: float) -> Shares:
    """Give the seats of guarantees on a copy of the state, as the next match does.

    Args:
        trial: Copy of the state, which is changed.
        settings: Settings of the scheduler.
        now: Seconds since the epoch.

    Returns:
        The standing of queues by which they were given.
    """
    standing = standing_of(trial, settings, now)
    backlog = Backlog(trial, settings, now, offered_of(trial), reading=True, standing=standing)
    trial.quota.seats_given = seat(Turn(trial, settings, now), backlog.barriers.may_be_seated).given
    return standing
