"""Effects of another tree of queues on jobs, apps and commands, found on a copy of the state."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from mesos_gpu.engine.apps.deploying import instance_of
from mesos_gpu.engine.charges import tree_of
from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.queue.admitting import admitted, check_app, of_app
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.forecast import Forecast, offered_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import seat
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotAccepted, TooMuch
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, Job, JobSpec
from mesos_gpu.model.jobs.why import PendingReclaim
from mesos_gpu.model.queue_plan import PlannedBlock, PlannedKind, PlannedReclaim
from mesos_gpu.model.tenancy import QueueDocument

_MAX_LOOKED_AT: Final = 1000  # jobs examined in queue order, as this blocks the engine's thread


class Trial:
    """Copy of the state in which a document of queues is the next version.

    No job is spared from reclaim in it: what jobs hold without a guarantee may be taken from them at once.

    Args:
        state: State of the engine, which stays unchanged.
        settings: Settings of the scheduler.
        document: Document that is the next version in the copy.
        now: Time, in seconds since the epoch.
    """

    def __init__(self, state: State, settings: Settings, document: QueueDocument, now: float) -> None:
        self._state, self._settings, self._now = state, settings, now
        self._trial = trial = STATES.duplicate(state)
        trial.put(replace(document, version=state.quota.queues.version + 1, at=now, reclaim_at=now))
        for job in state.work.jobs.values():
            if job.spared_until > now:
                trial.put(replace(job, spared_until=now))
        standing = give_seats(trial, settings, now)
        self._coming = Coming(trial, settings, now)
        self._forecast = Forecast(trial, settings, now, standing, self._coming)

    def blocks(self) -> tuple[PlannedBlock, ...]:
        """Return the pending jobs, apps and commands that may start now, but could not in the copy."""
        return (*self._blocked_jobs(), *self._blocked_apps(), *self._refused_commands())

    def _blocked_jobs(self) -> Iterator[PlannedBlock]:
        """Yield pending jobs that limits block in the copy only."""
        before = _read_backlog(self._state, self._settings, self._now)[0].barriers
        after = self._forecast.backlog.barriers
        for job in islice(self._forecast.jobs, _MAX_LOOKED_AT):
            wait = after.wait_of(job)
            if wait is not None and before.wait_of(job) is None:
                yield PlannedBlock(PlannedKind.JOB, job.id, job.spec.queue, wait.words)

    def _blocked_apps(self) -> Iterator[PlannedBlock]:
        """Yield apps whose instances could not start, or not all, in the copy only."""
        tree = tree_of(self._trial, self._settings)
        for app in self._state.apps.catalog.root.all_apps():
            spec = instance_of(app, self._now)
            if not app.instances or isinstance(spec, str):
                continue
            before = {*check_app(self._state, self._settings, app, None, spec)}
            wrong = [
                fault
                for fault in check_app(self._trial, self._settings, app, None, spec)
                if fault not in before
            ]
            if wrong:
                queue = of_app(tree, spec, app.id).queue
                yield PlannedBlock(PlannedKind.APP, app.id, queue, "; ".join(why for _, why in wrong))

    def _refused_commands(self) -> Iterator[PlannedBlock]:
        """Yield the simplest command for each queue that would be refused in the copy only."""
        before = tree_of(self._state, self._settings)
        for leaf in tree_of(self._trial, self._settings).leaves():
            spec = JobSpec("job", command="true", gpus=1, queue=leaf.path)
            reason = _refusal(self._trial, self._settings, spec)
            if reason and not (leaf.path in before.queues and _refusal(self._state, self._settings, spec)):
                named = "" if leaf.path == DEFAULT_QUEUE else f" --queue {leaf.path}"
                yield PlannedBlock(PlannedKind.COMMAND, f"mesos-gpu run{named} --gpus 1", leaf.path, reason)

    def reclaims(self) -> tuple[PlannedReclaim, ...]:
        """Return the room that would be made for pending jobs, each with the first of these jobs."""
        jobs = islice(self._forecast.jobs, _MAX_LOOKED_AT)
        rooms = [(job, self._coming.of(self._forecast.backlog, job)) for job in jobs]
        first: dict[PendingReclaim, Job] = {}  # further jobs share this room
        for job, room in rooms:
            if room is not None:
                first.setdefault(room, job)
        return tuple(PlannedReclaim(job.id, job.spec.queue, room) for room, job in first.items())


def _refusal(state: State, settings: Settings, spec: JobSpec) -> str:
    """Return why a job of an unknown user would be refused, in words; "" if it would be accepted."""
    try:
        admitted(state, settings, spec, "")
    except (NotAccepted, TooMuch) as error:
        return error.what
    return ""


def give_seats(trial: State, settings: Settings, now: float) -> Shares:
    """Give free places of guarantees to jobs on a copy of the state, as the next match does.

    Args:
        trial: Copy of the state, which is changed.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.

    Returns:
        Fair shares of the queues, by which places were given.
    """
    backlog, standing = _read_backlog(trial, settings, now)
    trial.quota.seats_given = seat(Turn(trial, settings, now), backlog.barriers.may_be_seated).given
    return standing


def _read_backlog(state: State, settings: Settings, now: float) -> tuple[Backlog, Shares]:
    """Return the queue order for a reader, and the fair shares of queues by which it is made."""
    standing = standing_of(state, settings, now)
    return Backlog(state, settings, now, offered_of(state), reading=True, standing=standing), standing
