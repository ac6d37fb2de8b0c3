"""Apps, tasks and deployments as Marathon prints them.

`facts_of` gathers on the engine's thread, and is quick; all else may run elsewhere, on what it gathered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.api.service import View
from mesos_gpu.model.app import App, Group, PortDefinition
from mesos_gpu.model.job import Job
from mesos_gpu.model.rollout import Action, VersionInfo
from mesos_gpu.model.service import Deployment
from mesos_gpu.model.task import Task, TaskState
from mesos_gpu.wire.marathon.app import app_to_json
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.settle import ports_of

COUNTS, TASKS, DEPLOYMENTS = "counts", "tasks", "deployments"
LAST_FAILURE, FAILURES, READINESS = "lastTaskFailure", "failures", "readiness"
_STATES: Final = {
    TaskState.ABSENT: "TASK_UNKNOWN",
    TaskState.LAUNCHED: "TASK_STAGING",
    TaskState.STARTING: "TASK_STARTING",
    TaskState.RUNNING: "TASK_RUNNING",
    TaskState.KILLING: "TASK_KILLING",
    TaskState.UNREACHABLE: "TASK_UNREACHABLE",
    TaskState.ABANDONED: "TASK_UNREACHABLE",
    TaskState.FINISHED: "TASK_FINISHED",
    TaskState.FAILED: "TASK_FAILED",
    TaskState.KILLED: "TASK_KILLED",
    TaskState.LOST: "TASK_LOST",
}
STAGED: Final = ("TASK_STAGING", "TASK_STARTING")
RUNNING: Final = "TASK_RUNNING"


@dataclass(frozen=True, slots=True)
class Launch:
    """One task of an app that has not ended, and the instance that it is of."""

    job: Job
    task: Task

    @property
    def state(self) -> str:
        """Mesos' name of it."""
        return _STATES[self.task.state]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one app at one moment."""

    app: App
    info: VersionInfo
    launches: tuple[Launch, ...] = ()
    deployments: tuple[str, ...] = ()  # that change it
    failure: tuple[Job, Task | None] | None = None  # the instance that failed last


def facts_of(view: View, apps: Iterable[App], *, failures: bool = False) -> list[Facts]:
    """Of `apps`, which are those of the view's root; `failures`: the last one of each too, which takes a while."""
    busy: dict[str, list[str]] = {}
    for deployment in view.deployments.values():
        for id in deployment.plan.affected:
            busy.setdefault(id, []).append(deployment.id)
    return [
        Facts(
            app,
            view.versions[app.id],
            launches_of(view, app.id),
            tuple(busy.get(app.id, ())),
            _failure(view, app.id) if failures else None,
        )
        for app in apps
    ]


def launches_of(view: View, app_id: str) -> tuple[Launch, ...]:
    """The tasks of an app that have not ended."""
    return tuple(
        Launch(job, task)
        for job in view.instances_of(app_id)
        for task in view.round_of(job)
        if not task.ended
    )


def _failure(view: View, app_id: str) -> tuple[Job, Task | None] | None:
    job = view.last_failure(app_id)
    if job is None:
        return None
    return job, view.tasks.get(job.task_id) if job.task_id else None


# --- JSON


def app_json(app: App, info: VersionInfo) -> dict[str, Any]:
    """A definition with its version."""
    version = {
        "lastScalingAt": stamp(info.last_scaling_at),
        "lastConfigChangeAt": stamp(info.last_config_change_at),
    }
    return {**app_to_json(app), "version": stamp(info.version), "versionInfo": version}


def app_info(facts: Facts, embed: frozenset[str]) -> dict[str, Any]:
    """A definition with what was asked to be embedded."""
    body = app_json(facts.app, facts.info)
    if COUNTS in embed or FAILURES in embed:
        body.update(_counts(facts))
    if {DEPLOYMENTS, TASKS, FAILURES} & embed:  # tasks bring deployments along, as in Marathon
        body["deployments"] = [{"id": id} for id in facts.deployments]
    if TASKS in embed or FAILURES in embed:
        body["tasks"] = [task_json(facts.app, each) for each in facts.launches]
    if READINESS in embed:
        body["readinessCheckResults"] = []
    if {LAST_FAILURE, FAILURES} & embed and facts.failure is not None:
        body["lastTaskFailure"] = _failure_json(facts.app.id, *facts.failure)
    return body


def _counts(facts: Facts) -> dict[str, int]:
    states = [each.state for each in facts.launches]
    healths = [each.task.healthy for each in facts.launches] if facts.app.health_checks else []
    return {
        "tasksStaged": sum(state in STAGED for state in states),
        "tasksRunning": states.count(RUNNING),
        "tasksHealthy": healths.count(True),
        "tasksUnhealthy": healths.count(False),
    }


def task_json(app: App, launch: Launch) -> dict[str, Any]:
    """One task."""
    job, task = launch.job, launch.task
    body: dict[str, Any] = {
        "id": task.id,
        "appId": app.id,
        "host": task.hostname,
        "slaveId": task.agent_id,
        "state": launch.state,
        "ports": list(task.ports),
        "servicePorts": [_service_port(each) for each in ports_of(app)],
        "ipAddresses": [],
        "localVolumes": [],
        "healthCheckResults": [],
        "stagedAt": stamp(task.launched_at),
        "role": app.role or "*",
    }
    if task.started_at is not None:
        body["startedAt"] = stamp(task.started_at)
    if job.app_version is not None:
        body["version"] = stamp(job.app_version)
    if app.health_checks and task.healthy is not None:
        instance = job.id.removesuffix("._app")
        body["healthCheckResults"] = [{"alive": task.healthy, "taskId": task.id, "instanceId": instance}]
    return body


def _service_port(port: Any) -> int:
    found: int = port.port if isinstance(port, PortDefinition) else port.service_port
    return found


def _failure_json(app_id: str, job: Job, task: Task | None) -> dict[str, Any]:
    return {
        "appId": app_id,
        "host": task.hostname if task else "",
        "message": job.message,
        "state": _STATES[task.state] if task else "TASK_FAILED",
        "taskId": job.task_id or job.id,
        "timestamp": stamp(job.ended_at or 0.0),
        "version": stamp(job.app_version or 0.0),
        **({"slaveId": task.agent_id} if task else {}),
    }


def group_json(group: Group, facts: Mapping[str, Facts], embed: frozenset[str]) -> dict[str, Any]:
    """A group and what is below it, as far as `embed` says: "apps", "groups", and "apps.tasks" as of an app."""
    of_apps = frozenset(each.removeprefix("apps.") for each in embed if each.startswith("apps."))
    body: dict[str, Any] = {
        "id": group.id,
        "dependencies": list(group.dependencies),
        "version": stamp(_latest(group, facts)),
    }
    if group.enforce_role is not None:
        body["enforceRole"] = group.enforce_role
    if "apps" in embed or of_apps:
        body["apps"] = [app_info(facts[app.id], of_apps) for app in group.apps]
        body["pods"] = []
    if "groups" in embed:
        body["groups"] = [group_json(each, facts, embed) for each in group.groups]
    return body


def _latest(group: Group, facts: Mapping[str, Facts]) -> float:
    """When something in it was changed last; 0, as in Marathon, while it never had an app."""
    return max((facts[app.id].info.version for app in group.all_apps()), default=0.0)


def steps_json(steps: Sequence[Sequence[Action]]) -> list[dict[str, Any]]:
    """The steps of a plan."""
    return [{"actions": [_action_json(each) for each in step]} for step in steps]


def _action_json(action: Action) -> dict[str, Any]:
    return {"action": action.kind.value, "app": action.app.id}


def deployment_json(found: Deployment, *, waiting: bool) -> dict[str, Any]:
    """A deployment under way; with `waiting`, which is ours, why nothing is done, by app.

    Clients that know every key refuse others: it is there for those who ask.
    """
    steps = found.plan.steps
    current = [_action_json(each) | {"readinessCheckResults": []} for each in steps[found.step]]
    body = {
        "id": found.id,
        "version": stamp(found.version),
        "affectedApps": sorted(found.plan.affected),
        "affectedPods": [],
        "steps": steps_json(steps),
        "currentActions": current,
        "currentStep": found.step + 1,
        "totalSteps": len(steps),
    }
    return body | ({"waiting": {app: why for app, why in found.waiting.items() if why}} if waiting else {})
