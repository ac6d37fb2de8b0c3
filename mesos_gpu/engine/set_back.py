"""What is done when the clock of the scheduler's host was set back: else all that waits for a time waits longer by as
much. Moments since which something is counted are not in the future then, and those until which something lasts come
as soon as they would have; a token is good for no longer than it was made for. Records of what was used keep theirs,
and so do times of the calendar that somebody has chosen himself.

Where it was set ahead, or the scheduler stood still or was down, what is cut off is not given up for the time in
between: nobody could have said meanwhile that it is back. For deadlines of deployments that time does not count either.
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
MIN_S: Final = 5.0  # nothing waits so long that it matters
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
    """Moments by the clock as it is now."""

    def __init__(self, now: float, by_s: float) -> None:
        self.now, self.before, self._by_s = now, now + by_s, by_s

    def since(self, at: float) -> float:
        """A moment that has passed."""
        return min(at, self.now)

    def until(self, at: float) -> float:
        """A moment that comes."""
        return max(at - self._by_s, self.now) if at > self.now else at

    def of(self, value: Any, *passed: str, to_come: tuple[str, ...] = ()) -> Any:
        """A dataclass with those of its moments that it has."""
        made: dict[str, float] = {}
        for names, moment in ((passed, self.since), (to_come, self.until)):
            for name in names:
                at = getattr(value, name)
                if at is not None and moment(at) != at:
                    made[name] = moment(at)
        return replace(value, **made) if made else value


def on_tick(turn: Turn) -> None:
    """See whether the clock was set, or nothing was done for a time, since all tasks were looked at last, at the start
    since the latest moment on record."""
    by_s = (turn.state.work.tended_at or latest(turn.state)) - turn.now
    if by_s > MIN_S:
        moments = _Moments(turn.now, by_s)
        _remember(turn.state, moments)
        _save(turn, moments)
    elif -by_s > MIN_S:
        _pass_over(turn, -by_s)


def _pass_over(turn: Turn, gap_s: float) -> None:
    """Leave a time out of that for which tasks were cut off; what is given up stays so."""
    for task in [turn.state.work.tasks[task_id] for task_id in turn.state.work.live]:
        since = task.unreachable_since
        if since is not None and since < turn.now and task.state is not TaskState.ABANDONED:
            turn.put_task(replace(task, unreachable_since=min(since + gap_s, turn.now)))
    _change_progress(turn, lambda at: min(at + gap_s, turn.now))


def _change_progress(turn: Turn, how: Callable[[float], float]) -> None:
    """Change when deployments with a deadline made progress."""
    for deployment in list(turn.state.apps.deployments.values()):
        changed = {id: replace(each, at=how(each.at)) for id, each in deployment.progress.items()}
        if changed != deployment.progress:
            turn.put(replace(deployment, progress=changed))


def latest(state: State) -> float:
    """The latest moment that is on record of what runs, waits or reports."""
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
    """Change what only memory has."""
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
    for told in state.work.restless.told.values():
        _change(told, moments.since)
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
    # These are made again.
    state.cluster.table = state.quota.made_books = state.quota.leaves = None
    state.quota.moved_jobs.clear()
    state.match.unmatched = True


def _change(known: dict[Any, V], how: Callable[[V], V]) -> None:
    for key, value in known.items():
        known[key] = how(value)


def _save(turn: Turn, moments: _Moments) -> None:
    """Change what is saved."""
    state = turn.state
    jobs = [job for job in state.work.jobs.values() if not job.state.ended]
    of_jobs = (
        task_id for job in jobs for task_id in state.work.launches.get(job.id, ())
    )  # how long each waits since
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
    """Change what operators, and who logs in, have asked for."""
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
    if task.notice is not None and task.notice.stands:
        task = replace(task, notice=moments.of(task.notice, "at", to_come=("until",)))
    if task.resize is not None:
        task = replace(task, resize=moments.of(task.resize, "since", "sent_at"))
    names = "launched_at", "started_at", "heard_at", "unreachable_since", "kill_sent_at", "ended_at"
    return moments.of(task, *names)


def _job(job: Job, moments: _Moments) -> Any:
    if job.served is not None:
        job = replace(job, served=moments.of(job.served, "waits_since"))
    ahead = (
        job.room_made_at is not None and job.room_made_at > moments.before
    )  # hours change then, by the clock
    passed = ("submitted_at", "started_at", "in_line_since", "checkpoint_at")
    made = () if ahead else ("room_made_at",)
    return moments.of(job, *passed, *made, to_come=("not_before", "spared_until"))


def _token(token: Token, moments: _Moments) -> Any:
    """A token that was made while the clock was right keeps its end."""
    ahead_s = max(token.created_at - moments.now, 0.0)
    return moments.of(replace(token, expires_at=token.expires_at - ahead_s), "created_at", "used_at")


def _node(node: Node, moments: _Moments) -> Any:
    return moments.of(node, "reported_at", "lost_at", to_come=("monitor_not_before", "launch_not_before"))
