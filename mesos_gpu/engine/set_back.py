"""Correction of times after the clock of the scheduler's host was changed.

After the clock was set back, everything that waits for a time would wait longer. Therefore times that have passed are
moved to the present at the latest, and times to come are moved back with the clock; a token lives no longer than it
was made for. Records of use and times of bookings that users have chosen stay as they are.

If the clock was set ahead, or the scheduler was stopped for some time, unreachable tasks are not given up for that
time, as nothing could report their return meanwhile. Nor does the time count for deadlines of deployments.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from mesos_gpu.engine.indexes.memory import Reconciliation
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task, TaskState

V = TypeVar("V")
MIN_S: Final = 5.0  # smaller changes of the clock do not matter
_SINCE: Final = (
    "registered_at",
    "swept_at",
    "matched_at",
    "tended_at",
    "reconciled_at",
    "listing_at",
    "tokens_swept_at",
    "past_uses_swept_at",
    "looked_at_apps",
)


class _Moments:
    """Conversion of times to the clock as it is now.

    Args:
        now: Present time, in seconds since the epoch.
        by_s: Seconds by which the clock was set back.
    """

    def __init__(self, now: float, by_s: float) -> None:
        self.now, self.before, self._by_s = now, now + by_s, by_s

    def since(self, at: float) -> float:
        """Return a time that has passed, at most the present."""
        return min(at, self.now)

    def until(self, at: float) -> float:
        """Return a time to come, moved back with the clock."""
        return max(at - self._by_s, self.now) if at > self.now else at

    def of(self, value: Any, *passed: str, to_come: tuple[str, ...] = ()) -> Any:
        """Return a dataclass with corrected times.

        Args:
            value: Dataclass with times, some of which may be None.
            passed: Fields with times that have passed.
            to_come: Fields with times to come.
        """
        changes: dict[str, float] = {}
        for names, moment in ((passed, self.since), (to_come, self.until)):
            for name in names:
                at = getattr(value, name)
                if at is not None and moment(at) != at:
                    changes[name] = moment(at)
        return replace(value, **changes) if changes else value


def on_tick(turn: Turn) -> None:
    """Correct times if the clock was changed, or nothing was done for some time, since the last tick or saved time."""
    by_s = (turn.state.work.tended_at or latest(turn.state)) - turn.now
    if by_s > MIN_S:
        moments = _Moments(turn.now, by_s)
        _remember(turn.state, moments)
        _save(turn, moments)
    elif -by_s > MIN_S:
        _pass_over(turn, -by_s)


def _pass_over(turn: Turn, gap_s: float) -> None:
    """Leave a gap of time out of the time for which tasks were unreachable; launches that were given up stay so."""
    for task in [turn.state.work.tasks[task_id] for task_id in turn.state.work.live]:
        since = task.unreachable_since
        if since is not None and since < turn.now and task.state is not TaskState.ABANDONED:
            turn.put_task(replace(task, unreachable_since=min(since + gap_s, turn.now)))
    _change_progress(turn, lambda at: min(at + gap_s, turn.now))


def _change_progress(turn: Turn, how: Callable[[float], float]) -> None:
    """Change the times at which deployments with a deadline made progress."""
    for deployment in list(turn.state.apps.deployments.values()):
        changed = {id: replace(each, at=how(each.at)) for id, each in deployment.progress.items()}
        if changed != deployment.progress:
            turn.put(replace(deployment, progress=changed))


def latest(state: State) -> float:
    """Return the latest saved time of tasks, pending jobs and reports, in seconds since the epoch."""
    tasks = (state.work.tasks[task_id] for task_id in state.work.live)
    jobs = (state.work.jobs[job_id] for _, job_id in state.work.queue)
    moments = [
        *(
            max(task.launched_at, task.heard_at, task.kill_sent_at or 0.0, task.unreachable_since or 0.0)
            for task in tasks
        ),
        *(job.submitted_at for job in jobs),
        *(node.reported_at for node in state.cluster.nodes.values() if node.reported_at is not None),
    ]
    return max(moments, default=0.0)


def _remember(state: State, moments: _Moments) -> None:
    """Correct the times that are only in memory."""
    for name in _SINCE:
        part = state.part_with(name)
        setattr(part, name, moments.since(getattr(part, name)))
    if state.mesos.idle_since is not None:
        state.mesos.idle_since = moments.since(state.mesos.idle_since)
    state.mesos.reserve_from = moments.until(state.mesos.reserve_from)
    if state.mesos.reconciliation is not None:
        state.mesos.reconciliation = Reconciliation(started_at=moments.now, next_at=moments.now)
    for since in (state.gpus.idle, state.gpus.uncovered, state.work.released):
        _change(since, moments.since)
    for killed in state.work.restless.told.values():
        _change(killed, moments.since)
    _change(state.gpus.contested, moments.until)
    _change(state.gpus.keeper_failures, lambda each: (each[0], moments.until(each[1])))
    _change(state.apps.backoffs, lambda each: (each[0], moments.until(each[1])))
    _change(state.work.notified, lambda each: (each[0], moments.since(each[1])))
    _change(state.cluster.capacities, lambda each: moments.of(each, "since"))
    _change(state.cluster.windows, lambda each: moments.of(each, "shrunk_at", "backed_off_at", "latest"))
    _change(state.cluster.unreserved, lambda each: moments.of(each, to_come=("until",)))
    _change(state.work.secrets, lambda each: moments.of(each, "asked_at", "read_at", to_come=("next_at",)))
    state.cluster.rolls.looked_at = moments.since(state.cluster.rolls.looked_at)
    _change(state.cluster.rolls.under_way, lambda each: moments.of(each, "since", "asked_at"))
    for offer in list(state.cluster.offers.values()):
        state.cluster.hold_offer(moments.of(offer, "received_at"))
    # These indexes are built again on next use.
    state.cluster.table = state.quota.made_books = state.quota.leaves = None
    state.quota.moved_jobs.clear()
    state.match.unmatched = True


def _change(known: dict[Any, V], how: Callable[[V], V]) -> None:
    """Replace each value of a dict by its correction."""
    for key, value in known.items():
        known[key] = how(value)


def _save(turn: Turn, moments: _Moments) -> None:
    """Correct the times that are saved."""
    state = turn.state
    jobs = [job for job in state.work.jobs.values() if not job.state.ended]
    # Waiting times of jobs follow from the ends of their earlier launches.
    of_jobs = (task_id for job in jobs for task_id in state.work.launches.get(job.id, ()))
    for task in [state.work.tasks[task_id] for task_id in dict.fromkeys((*state.work.live, *of_jobs))]:
        if (changed := _task(task, moments)) != task:
            turn.put_task(changed)
    for job in jobs:
        if (job_now := _job(job, moments)) != job:
            turn.put_job(job_now)
    for node in list(state.cluster.nodes.values()):
        if (node_now := _node(node, moments)) != node:
            turn.put_node(node_now)
    _save_asked(turn, moments)


def _save_asked(turn: Turn, moments: _Moments) -> None:
    """Correct the times of drains, resets, tokens, idle times and deployments."""
    state = turn.state
    for drain in list(state.cluster.drains.values()):
        if (drain_now := moments.of(drain, "since", to_come=("deadline_at",))) != drain:
            turn.put_drain(drain_now)
    for card in [state.gpus.cards[gpu_id] for gpu_id in state.gpus.resets]:
        if card.reset is not None and (reset := moments.of(card.reset, "since", "sent_at")) != card.reset:
            turn.put_card(replace(card, reset=reset))
    for token in list(state.rights.tokens.values()):
        if (token_now := _token(token, moments)) != token:
            turn.put(token_now)
    for idleness in list(state.work.idlenesses.values()):
        if (idleness_now := moments.of(idleness, "since", "known_at")) != idleness:
            turn.put(idleness_now)
    _change_progress(turn, moments.since)


def _task(task: Task, moments: _Moments) -> Any:
    """Return a task with corrected times."""
    if task.notice is not None and task.notice.stands:
        task = replace(task, notice=moments.of(task.notice, "at", to_come=("until",)))
    if task.resize is not None:
        task = replace(task, resize=moments.of(task.resize, "since", "sent_at"))
    names = "launched_at", "started_at", "heard_at", "unreachable_since", "kill_sent_at", "ended_at"
    return moments.of(task, *names)


def _job(job: Job, moments: _Moments) -> Any:
    """Return a job with corrected times."""
    if job.served is not None:
        job = replace(job, served=moments.of(job.served, "waits_since"))
    # Room that is made for the next hours has a time by the clock, which stays.
    ahead = job.room_made_at is not None and job.room_made_at > moments.before
    passed = ("submitted_at", "started_at", "in_line_since", "checkpoint_at")
    made = () if ahead else ("room_made_at",)
    return moments.of(job, *passed, *made, to_come=("not_before", "spared_until"))


def _token(token: Token, moments: _Moments) -> Any:
    """Return a token with corrected times; one that was created by the right clock keeps its expiry."""
    ahead_s = max(token.created_at - moments.now, 0.0)
    return moments.of(replace(token, expires_at=token.expires_at - ahead_s), "created_at", "used_at")


def _node(node: Node, moments: _Moments) -> Any:
    """Return a node with corrected times."""
    return moments.of(node, "reported_at", "lost_at", to_come=("monitor_not_before", "launch_not_before"))
