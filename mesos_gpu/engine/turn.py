"""A step in progress: the state, the time, and the effects so far."""

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import Effect, Publish
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.indexes import has, without
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Card, Drain
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import NOUN_OF
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.queueing.backoff import delay_s


@dataclass(slots=True)
class Turn:
    """Step in progress: the only way to change the state, so that each change has its `Save` effect.

    Attributes:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time of the step, in seconds since the epoch.
        effects: Effects of the step so far.
    """

    state: State
    settings: Settings
    now: float
    effects: list[Effect] = field(default_factory=list)

    def put(self, value: Any) -> None:
        """Save a value of a noun, in place of the one with its key."""
        self.state.put(value)
        self.effects.append(NOUN_OF[type(value)].save(value))

    def drop(self, kind: type[Any], *key: Any) -> None:
        """Remove the value of a noun that has that key."""
        self.state.drop(kind, *key)
        forget = NOUN_OF[kind].forget
        assert forget is not None, f"{kind.__name__} is never forgotten"
        self.effects.append(forget(*key))

    def put_job(self, job: Job) -> Job:
        """Save and publish a changed job with a higher version."""
        self.state.match.unmatched = True
        return self.show_job(changed(job, version=job.version + 1) if job.id in self.state.work.jobs else job)

    def show_job(self, job: Job) -> Job:
        """Save and publish a job after a change that lets no job start; a job that holds nothing loses its seat."""
        has_place = job.seat is not None or job.spared_until
        if has_place and (job.state is JobState.PENDING or job.state.ended):
            job = replace(job, seat=None, spared_until=0.0)
        taken_up = job.array is not None and self._note_member(job)
        self.put(job)
        self.effects.append(Publish(job.id, job.version))
        if taken_up and job.array is not None:
            self.publish_array(self.state.work.arrays[job.array])
        return job

    def _note_member(self, job: Job) -> bool:
        """Record the state of a member in its array; return whether the array has changed."""
        array = self.state.work.arrays.get(job.array or JobId(""))
        place = None if array is None or job.index is None else array.indexes.position(job.index)
        if array is None or place is None:
            return False
        self.state.work.members.take_up(job)
        updated = (
            replace(array, left=without(array.left, ((place, place),))) if has(array.left, place) else array
        )
        old = self.state.work.jobs.get(job.id)
        if job.state.ended and not (old is not None and old.state.ended):
            updated = updated.end_of(place, job.state)
        elif updated is array:
            return False
        self.put_array(updated)
        return True

    def publish_array(self, array: JobArray) -> None:
        """Report a change of an array to listeners."""
        self.effects.append(Publish(array.id, array.version))

    def put_array(self, array: JobArray) -> JobArray:
        """Save a changed array with a higher version."""
        array = replace(array, version=array.version + 1)
        self.put(array)
        return array

    def show_task(self, task: Task) -> None:
        """Save a task after a change that lets no job start, and publish its job."""
        self.put(task)
        job = self.state.work.current(task)
        if job is not None:
            self.show_job(changed(job, version=job.version + 1))

    def put_task(self, task: Task) -> None:
        """Save a task."""
        self.put(task)
        self.state.match.unmatched = True

    def put_node(self, node: Node) -> None:
        """Save a node."""
        old = self.state.cluster.nodes.get(node.id)
        self.put(node)
        if old is None or self._has_news(old, node):
            self.state.match.unmatched = True
            self.state.cluster.touched.add(node.id)

    def _has_news(self, old: Node, new: Node) -> bool:
        """Return whether a change of a node is more than a further report without news.

        A thousand nodes send a hundred reports a second.
        """
        fresh_s = self.settings.programs.report_stale_s
        if old.reported_at is None or self.now - old.reported_at > fresh_s:
            return True
        if old.inventory is not new.inventory and _report_without_use(old) != _report_without_use(new):
            return True
        return _without_report(old) != _without_report(new)

    def put_drain(self, drain: Drain) -> None:
        """Save a drain."""
        self.put(drain)
        self.state.cluster.table = None

    def drop_drain(self, drain: Drain) -> None:
        """Remove a drain."""
        self.drop(Drain, drain.target, drain.name)
        self.state.cluster.table = None

    def put_card(self, card: Card) -> None:
        """Save the record of a GPU."""
        self.put(card)
        self.state.match.unmatched, self.state.cluster.table = True, None

    def end_job(self, job: Job, state: JobState, message: str, exit_code: int | None = None) -> None:
        """End a job."""
        ended_at = self._ended_at(job)
        self.put_job(replace(job, state=state, message=message, exit_code=exit_code, ended_at=ended_at))

    def _ended_at(self, job: Job) -> float:
        """Return the end of a job's tasks if it was just reported, else the present time."""
        tasks = self.state.work.round_of(job)
        if not all(task.ended for task in tasks) or all(task.heard_at < self.now for task in tasks):
            return self.now
        return max(task.ended_at or self.now for task in tasks)

    def requeue(self, job: Job, message: str) -> None:
        """Put a job back to its place in the queue; no attempt is used up."""
        failures = job.infrastructure_failures + 1
        if job.adopted:
            self._end_adopted(job, message)
            return
        if failures > self.settings.tasks.max_infrastructure_failures:
            why = f"gave up after {failures} launches lost to the infrastructure; the last: {message}"
            self.end_job(replace(job, infrastructure_failures=failures), JobState.FAILED, why)
            return
        wait_s = delay_s(
            failures, first_s=self.settings.tasks.requeue_first_s, most_s=self.settings.tasks.requeue_most_s
        )
        self.put_job(
            replace(
                job,
                state=JobState.PENDING,
                infrastructure_failures=failures,
                not_before=self.now + wait_s,
                started_at=None,
                message=message,
            )
        )

    def give_way(self, job: Job, message: str) -> None:
        """Put a job back to its place in the queue at once, as it made room for another job and has not failed."""
        if job.adopted:
            self._end_adopted(job, message)
            return
        self.put_job(replace(job, state=JobState.PENDING, started_at=None, message=message))

    def _end_adopted(self, job: Job, message: str) -> None:
        """Fail a job that was adopted by its labels, as it cannot start again."""
        why = f"{message}; it was adopted without its request, so it cannot start again: submit it again"
        self.end_job(job, JobState.FAILED, why)

    def retry(self, job: Job, message: str, exit_code: int | None, *, final: bool) -> None:
        """Count an attempt of a job; queue it for the next one, or fail it after the last."""
        job = replace(job, attempts=job.attempts + 1)
        if final or job.attempts >= job.spec.max_attempts:
            self.end_job(job, JobState.FAILED, message, exit_code)
            return
        wait_s = delay_s(
            job.attempts, first_s=self.settings.tasks.retry_first_s, most_s=self.settings.tasks.retry_most_s
        )
        message = f"attempt {job.attempts} of {job.spec.max_attempts}: {message}; next in {wait_s:g} s"
        self.put_job(
            replace(
                job,
                state=JobState.PENDING,
                not_before=self.now + wait_s,
                exit_code=exit_code,
                message=message,
            )
        )


#: All fields of a node but its latest report and the time of that.
_without_report: Final = attrgetter(
    *[each.name for each in fields(Node) if each.name not in ("reported_at", "inventory")]
)


def _report_without_use(node: Node) -> Inventory | None:
    """Return a node's report without the use of GPUs and shares, which differs in each report."""
    report = node.inventory
    return None if report is None else replace(report, uses=(), gpu_uses=(), task_uses=())
