"""Selection of app tasks for the scheduler's own health and readiness checks, following the engine's state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from mesos_gpu.adapters.prober import Prober
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.addresses import is_loopback_host
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.healthcheck import Readiness
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.healthcheck import TaskHealth
from mesos_gpu.policy.apps.outward import Outward, Way, innermost
from mesos_gpu.scheduler.checks import Checks, Names, Subject
from mesos_gpu.scheduler.control import of_cluster
from mesos_gpu.scheduler.readiness import Candidate, ReadinessChecks

LOOK_S = 1.0


class Watching:
    """Health and readiness checks of all apps; threads start with the first app that needs them.

    Args:
        put: Function that takes results, called from any thread.
        outward: Addresses that checks may connect to.
        own: Ports of this scheduler, which checks never connect to.
    """

    def __init__(self, put: Callable[[ev.Event], None], outward: Outward, own: Sequence[ControlPort]) -> None:
        self._put, self._outward, self._own = put, outward, own
        self._makers: tuple[Checks, ReadinessChecks] | None = None
        self._healths: set[str] = set()  # tasks whose health is checked
        self._candidates: set[str] = set()  # tasks that are not ready yet
        self._looked_at = 0.0
        self._tasks: Mapping[TaskId, Task] = {}  # the engine's own mapping, set by `look`

    def look(self, state: State, now: float) -> None:
        """Start checks of tasks that run by now and stop those of ended tasks, at most once a second; engine's
        thread."""
        if now - self._looked_at < LOOK_S or not (state.apps.instances or self._healths or self._candidates):
            return
        if not state.mesos.master_url:
            return  # not subscribed yet: the permitted addresses depend on the master's
        self._looked_at, self._tasks = now, state.work.tasks
        running = list(_running(state))
        way = self._way(state)
        subjects = {task.id: _subject(task, app, way) for job, task, app in running if job.checked}
        candidates = {
            task.id: _candidate(task, app, way)
            for job, task, app in running
            if job.proves_ready and not task.ready and _may_be_asked(task, app)
        }
        if subjects or candidates or self._makers:
            self._compare(subjects, candidates)

    def _way(self, state: State) -> Way:
        """Return the restriction of checks: it keeps users from making the scheduler send requests to masters or
        agents."""
        controls = of_cluster(
            state.mesos.master_url, (node.agent_url for node in state.cluster.nodes.values())
        )
        return Way(
            self._outward,
            frozenset(control.port for control in controls),
            frozenset(
                (innermost(ip_address(control.address)), control.port)
                for control in self._own
                if control.address
            ),
            frozenset(control.port for control in self._own),
            is_loopback_host(urlsplit(state.mesos.master_url).hostname or ""),
        )

    def _compare(self, subjects: dict[TaskId, Subject], candidates: dict[TaskId, Candidate]) -> None:
        checks, readiness = self._makers = self._makers or self._made()
        for task in self._healths - subjects.keys():
            checks.forget(task)
        for task in self._candidates - candidates.keys():
            readiness.forget(task)
        for new in subjects.keys() - self._healths:
            checks.watch(subjects[new])
        for new in candidates.keys() - self._candidates:
            readiness.watch(candidates[new])
        self._healths, self._candidates = set(subjects), set(candidates)

    def _made(self) -> tuple[Checks, ReadinessChecks]:
        prober, names = Prober(), Names()
        checks = Checks(self._found, prober=prober, names=names, stranger=self._stranger)
        return checks, ReadinessChecks(self._answered, prober, names)

    def _stranger(self, task_id: str, port: int) -> str:
        """Return why nothing may be sent to a port of a task; "" if it may.

        The executor must have proved that the task listens there, unless it is of an earlier release without proofs.
        """
        task = self._tasks.get(TaskId(task_id))
        if task is None or task.listening is None or port in task.listening.ports:
            return ""
        return task.listening.problem or f"the task does not listen on port {port} yet"

    def stop(self) -> None:
        """Stop all checks."""
        if self._makers is not None:
            self._makers[0].stop()  # this also stops the shared prober and resolver

    def _found(self, task: str, health: TaskHealth) -> None:
        self._put(ev.HealthFound(TaskId(task), health.healthy, health.kill, health.healths))

    def _answered(self, task: str, readiness: Readiness) -> None:
        self._put(ev.ReadinessFound(TaskId(task), readiness))


def _running(state: State) -> Iterator[tuple[Job, Task, App]]:
    """Yield instances that have checks, with the version of the app that they were started from."""
    for app_id, ids in state.apps.instances.items():
        for job in map(state.work.jobs.__getitem__, ids):
            if not (job.checked or job.proves_ready):
                continue
            versions = state.apps.app_versions.get(app_id, ())
            app = next((version.app for version in versions if version.version == job.app_version), None)
            for task in state.work.round_of(job):
                if app is not None and task.state is TaskState.RUNNING and task.started_at is not None:
                    yield job, task, app


def _subject(task: Task, app: App, way: Way) -> Subject:
    return Subject(task.id, _host(task), task.ports, app.health_checks, task.started_at or 0.0, way)


def _may_be_asked(task: Task, app: App) -> bool:
    """Return whether a task's readiness check may connect; True for a missing port, which the check itself reports."""
    port = _ready_port(task, app)
    return port is None or port in task.proved_ports


def _ready_port(task: Task, app: App) -> int | None:
    """Return the task's port for the readiness check of its app; None if the task has no port of that name."""
    # An app has at most one readiness check.
    names, wanted = [port.name for port in app.ports], app.readiness_checks[0].port_name
    index = names.index(wanted) if wanted in names else len(task.ports)
    return task.ports[index] if index < len(task.ports) else None


def _candidate(task: Task, app: App, way: Way) -> Candidate:
    return Candidate(task.id, _host(task), _ready_port(task, app), app.readiness_checks[0], way)


def _host(task: Task) -> str:
    """Return the address of a task's agent, because its host name may not be resolvable here."""
    return urlsplit(task.agent_url).hostname or task.hostname
