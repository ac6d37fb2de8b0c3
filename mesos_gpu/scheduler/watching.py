"""Which tasks of apps the scheduler checks itself, kept in step with the engine's state."""

from collections.abc import Callable
from urllib.parse import urlsplit

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.task import Task, TaskState
from mesos_gpu.policy.healthcheck import TaskHealth
from mesos_gpu.scheduler.checks import Checks, Subject

LOOK_S = 1.0


class Watching:
    """Threads start with the first app that wants them."""

    def __init__(self, put: Callable[[ev.Event], None]) -> None:
        """`put`: takes what was found, from any thread."""
        self._put = put
        self._checks: Checks | None = None
        self._watched: set[str] = set()
        self._looked_at = 0.0

    def look(self, state: State, now: float) -> None:
        """Begin to check what has begun to run, and leave what has ended; on the engine's thread, now and then."""
        if now - self._looked_at < LOOK_S or not (state.instances or self._watched):
            return
        self._looked_at = now
        subjects = {subject.task: subject for subject in map(_subject(state), _running(state)) if subject}
        for task in self._watched - subjects.keys():
            assert self._checks is not None
            self._checks.forget(task)
        for task in subjects.keys() - self._watched:
            self._checks = self._checks or Checks(self._found)
            self._checks.watch(subjects[task])
        self._watched = set(subjects)

    def stop(self) -> None:
        """End all."""
        if self._checks is not None:
            self._checks.stop()

    def _found(self, task: str, health: TaskHealth) -> None:
        self._put(ev.HealthFound(TaskId(task), health.healthy, health.kill))


def _running(state: State) -> list[Task]:
    jobs = (state.jobs[job_id] for ids in state.instances.values() for job_id in ids)
    tasks = [task for job in jobs if job.checked for task in state.round_of(job)]
    return [task for task in tasks if task.state is TaskState.RUNNING]


def _subject(state: State) -> Callable[[Task], Subject | None]:
    def made(task: Task) -> Subject | None:
        job = state.jobs[task.job_id] if task.job_id else None
        known = state.app_versions.get(job.spec.app or "", ()) if job else ()
        app = next((found.app for found in known if job and found.version == job.app_version), None)
        if app is None or task.started_at is None:
            return None
        host = (
            urlsplit(task.agent_url).hostname or task.hostname
        )  # its address: a name need not be known here
        return Subject(task.id, host, task.ports, app.health_checks, task.started_at)

    return made
