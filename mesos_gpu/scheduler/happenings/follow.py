"""Events, and records of ended jobs, derived from the effects of a batch and saved together with it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.state import State
from mesos_gpu.model import saves
from mesos_gpu.model.arrays.array import JobArray, as_job
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owner_of
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.past_jobs import past
from mesos_gpu.model.tasks.event import EventKind, JobEvent, LogEvent
from mesos_gpu.policy.apps.rollout.deadline import OVERDUE, overdue
from mesos_gpu.policy.explain.silence import backed_off
from mesos_gpu.scheduler.happenings.bookings import happened_to
from mesos_gpu.scheduler.happenings.log import EventLog

_OF_STATE: Final = {
    JobState.RUNNING: EventKind.STARTED,
    JobState.UNREACHABLE: EventKind.UNREACHABLE,
    JobState.FINISHED: EventKind.FINISHED,
    JobState.FAILED: EventKind.FAILED,
    JobState.KILLED: EventKind.KILLED,
}
_MS: Final = 1000


class EventSource:
    """Source of event log entries that remembers the last reported state. Only for the engine's thread.

    Args:
        state: State whose contents count as reported.
        log: Log that receives events once they are saved.
    """

    def __init__(self, state: State, log: EventLog) -> None:
        self._log, self._ready = log, list[LogEvent]()
        self._forgotten, self._last = 0, log.last
        self._jobs = {job.id: job.state for job in state.work.jobs.values()}
        self._jobs |= {array.id: _state_of(array) for array in state.work.arrays.values()}
        self._up = {node.id: node.lost_at is None for node in state.cluster.nodes.values()}
        self._slow = {node.id: bool(node.launch_not_before) for node in state.cluster.nodes.values()}
        self._cards = {
            gpu.id: (node.id, gpu.health) for node in state.cluster.nodes.values() for gpu in node.gpus
        }
        self._gpus = dict[AgentId, tuple[Gpu, ...]]()  # as last reported by each node
        self._drains = {key: _words(drain) for key, drain in state.cluster.drains.items()}
        self._bookings = dict(state.calendar.bookings)
        self._deployed = {
            deployment.id: tuple(sorted(deployment.plan.affected))
            for deployment in state.apps.deployments.values()
        }
        self._overdue = {
            deployment.id: overdue(deployment.progress) for deployment in state.apps.deployments.values()
        }
        self._engine = state.work.events[-1].number if state.work.events else 0

    def follow(self, effects: Iterable[fx.Effect], state: State, now: float) -> list[saves.Save]:
        """Return the records to save together with these effects.

        Args:
            effects: Effects of a batch.
            state: State after the batch.
            now: Seconds since the epoch.
        """
        happened, kept = list[LogEvent](), list[saves.Save]()
        for effect in effects:
            if (handler := _OF_EFFECT.get(type(effect))) is not None:
                happened += handler(self, effect)
            if isinstance(effect, saves.SaveJob) and effect.job.state.ended:
                hosts = {task.hostname: None for task in state.work.round_of(effect.job) if task.hostname}
                kept.append(saves.KeepJob(past(effect.job, tuple(hosts), now)))
        happened += self._of_engine(state)
        self._ready = [self._numbered(event, now) for event in happened]
        kept += [saves.KeepEvent(event) for event in self._ready]
        self._forgotten = self._log.too_many()
        if self._forgotten:
            kept.append(saves.ForgetEvents(self._forgotten))
        return kept

    def saved(self) -> int | None:
        """Publish the events that were saved; return the number of the latest one, None if there is no new event."""
        ready, self._ready = self._ready, []
        if ready:
            self._log.add(ready, self._forgotten)
        return ready[-1].number if ready else None

    def _numbered(self, event: LogEvent, now: float) -> LogEvent:
        at = event.at or now
        self._last = max(int(at * _MS), self._last + 1)
        return changed(event, number=self._last, at=at)

    def _of_engine(self, state: State) -> list[LogEvent]:
        """Return the events that the engine itself recorded."""
        new: list[JobEvent] = []
        for event in reversed(state.work.events):
            if event.number <= self._engine:
                break
            new.append(event)
        if new:
            self._engine = new[0].number
        return [_from_engine(event, state.work.jobs.get(event.job_id)) for event in reversed(new)]

    def _array(self, effect: saves.SaveArray) -> list[LogEvent]:
        array = effect.array
        old, self._jobs[array.id] = self._jobs.get(array.id), _state_of(array)
        if old is self._jobs[array.id]:
            return []
        return [of_job(_OF_STATE.get(_state_of(array), EventKind.SUBMITTED), as_job(array, array.counts()))]

    def _forget_array(self, effect: saves.ForgetArray) -> list[LogEvent]:
        self._jobs.pop(effect.array_id, None)
        return []

    def _job(self, effect: saves.SaveJob) -> list[LogEvent]:
        job = effect.job
        old, self._jobs[job.id] = self._jobs.get(job.id), job.state
        if old is job.state:
            return []
        if job.state is JobState.PENDING:
            kind = EventKind.SUBMITTED if old is None else EventKind.REQUEUED
        elif job.state in _OF_STATE:
            kind = _OF_STATE[job.state]
        else:
            return []
        return [of_job(kind, job)]

    def _forget_job(self, effect: saves.ForgetJob) -> list[LogEvent]:
        self._jobs.pop(effect.job_id, None)
        return []

    def _node(self, effect: saves.SaveNode) -> list[LogEvent]:
        """Return events for changes of a node: lost or up, launches backed off, health of GPUs."""
        node, up = effect.node, effect.node.lost_at is None
        was, self._up[node.id] = self._up.get(node.id), up
        events = []
        if up is not was:
            state = "up" if up else "lost"
            text = f"node {node.hostname} is {state}"
            events.append(LogEvent(0, 0.0, EventKind.NODE, node=node.hostname, state=state, message=text))
        was_slow, self._slow[node.id] = self._slow.get(node.id, False), bool(node.launch_not_before)
        if was_slow is not self._slow[node.id]:
            state = "backed-off" if self._slow[node.id] else "up"
            text = f"node {node.hostname}: {backed_off(node) or 'its executors register again'}"
            events.append(LogEvent(0, 0.0, EventKind.NODE, node=node.hostname, state=state, message=text))
        if self._gpus.get(node.id) is node.gpus:
            return events  # unchanged report
        self._gpus[node.id] = node.gpus
        for gpu in node.gpus:
            (_, old), self._cards[gpu.id] = self._cards.get(gpu.id, (None, None)), (node.id, gpu.health)
            if old is not gpu.health and (old, gpu.health) != (None, Health.OK):
                events.append(_card(node, gpu, old))
        return events

    def _forget_node(self, effect: saves.ForgetNode) -> list[LogEvent]:
        self._up.pop(effect.agent_id, None)
        self._slow.pop(effect.agent_id, None)
        self._gpus.pop(effect.agent_id, None)
        for card in [id for id, (node, _) in self._cards.items() if node == effect.agent_id]:
            del self._cards[card]  # cards reported by another node since then stay
        return []

    def _drain(self, effect: saves.SaveDrain) -> list[LogEvent]:
        drain = effect.drain
        key, words = (drain.target, drain.name), _words(drain)
        if self._drains.get(key) == words:
            return []
        self._drains[key] = words
        return [_drained(EventKind.DRAINED, drain.target, drain.name, f"is {drain.words}")]

    def _undrain(self, effect: saves.ForgetDrain) -> list[LogEvent]:
        self._drains.pop((effect.target, effect.name), None)
        return [_drained(EventKind.UNDRAINED, effect.target, effect.name, "is not drained any more")]

    def _booking(self, effect: saves.SaveBooking) -> list[LogEvent]:
        old, self._bookings[effect.booking.id] = self._bookings.get(effect.booking.id), effect.booking
        return happened_to(old, effect.booking)

    def _deployment(self, effect: saves.SaveDeployment) -> list[LogEvent]:
        deployment = effect.deployment
        id, apps = deployment.id, tuple(sorted(deployment.plan.affected))
        was, self._overdue[id] = self._overdue.get(id, ()), overdue(deployment.progress)
        late = tuple(app for app in self._overdue[id] if app not in was)
        if id in self._deployed:
            reasons = "; ".join(
                f"{app}, {deployment.waiting.get(app, '').removeprefix(OVERDUE)}" for app in late
            )
            return [_deployment(id, apps, "overdue", reasons)] if late else []
        self._deployed[id] = apps
        return [_deployment(id, apps, "begun", deployment.undoes and f"it undoes {deployment.undoes}")]

    def _deployed_at_last(self, effect: saves.ForgetDeployment) -> list[LogEvent]:
        apps = self._deployed.pop(effect.id, ())
        self._overdue.pop(effect.id, None)
        return [_deployment(effect.id, apps, "done" if effect.done else "ended")]


def _state_of(array: JobArray) -> JobState:
    """Return the state reported for an array: pending until it has ended, then its outcome."""
    return JobState.PENDING if array.ended_at is None else array.outcome


def of_job(kind: EventKind, job: Job) -> LogEvent:
    """Return an event of a job, without a number yet."""
    return LogEvent(
        0,
        0.0,
        kind,
        job.id,
        job.owner,
        owner_of(job),
        job.spec.queue,
        (job.spec.app or "") if job.app_version is not None else "",
        job.message,
        job.exit_code if job.state.ended else None,
        notify=job.spec.notify,
        array=job.array or "",
    )


def _from_engine(event: JobEvent, job: Job | None) -> LogEvent:
    """Return the log event for an event of the engine."""
    event_of_job = LogEvent(0, event.at, event.kind, event.job_id) if job is None else of_job(event.kind, job)
    queue = event_of_job.queue if event.budget is None else event.budget.queue
    text = event.words if event.notice is None else event.notice.why
    return replace(
        event_of_job,
        at=event.at,
        notice=event.notice,
        budget=event.budget,
        queue=queue,
        message=text,
        exit_code=None,
    )


def _card(node: Node, gpu: Gpu, old: Health | None) -> LogEvent:
    was = f"{old.value} -> " if old else ""
    text = f"GPU {gpu.id} on {node.hostname}: {was}{gpu.health.value}{gpu.reason and f': {gpu.reason}'}"
    return LogEvent(
        0, 0.0, EventKind.GPU, node=node.hostname, gpu=gpu.id, state=gpu.health.value, message=text
    )


def _drained(kind: EventKind, target: Target, name: str, words: str) -> LogEvent:
    gpu, node = (GpuId(name), "") if target is Target.GPU else ("", name)
    return LogEvent(0, 0.0, kind, gpu=gpu, node=node, message=f"{target.value} {name} {words}")


def _deployment(id: str, apps: Sequence[str], state: str, more: str = "") -> LogEvent:
    text = f"deployment {id} of {', '.join(apps) or 'no app'}: {state}{more and f': {more}'}"
    return LogEvent(
        0,
        0.0,
        EventKind.DEPLOYMENT,
        JobId(""),
        state=state,
        deployment=id,
        apps=tuple(apps),
        message=text,
    )


def _words(drain: Drain) -> tuple[str, float | None]:
    return drain.words, drain.deadline_at


_OF_EFFECT: Final[dict[type, Callable[[EventSource, Any], list[LogEvent]]]] = {
    saves.SaveJob: EventSource._job,
    saves.SaveArray: EventSource._array,
    saves.ForgetArray: EventSource._forget_array,
    saves.ForgetJob: EventSource._forget_job,
    saves.SaveNode: EventSource._node,
    saves.ForgetNode: EventSource._forget_node,
    saves.SaveBooking: EventSource._booking,
    saves.SaveDrain: EventSource._drain,
    saves.ForgetDrain: EventSource._undrain,
    saves.SaveDeployment: EventSource._deployment,
    saves.ForgetDeployment: EventSource._deployed_at_last,
}
