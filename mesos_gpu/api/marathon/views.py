"""Apps, tasks and deployments in Marathon's JSON.

`facts_of` runs on the engine's thread, and is quick; all else may run elsewhere, on the facts.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from mesos_gpu.access.rights import APP_READ
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.apps import (
    check_results,
    checked_of,
    ends_of,
    instances_of,
    is_crashing,
    last_failures,
    readiness_of,
)
from mesos_gpu.engine.reading.jobs import round_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import App, Check, Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import Action, VersionInfo
from mesos_gpu.model.jobs.healthcheck import Answer, Checked, CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.mount import persistent_of
from mesos_gpu.model.jobs.queue import Ends
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.rollout.deadline import overdue
from mesos_gpu.policy.apps.task_ids import instance_of_job
from mesos_gpu.policy.apps.workload import without_effect
from mesos_gpu.wire.marathon.app import app_to_json
from mesos_gpu.wire.marathon.group import enforced_to_json
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.marathon.rules import report_others

COUNTS, TASKS, DEPLOYMENTS = "counts", "tasks", "deployments"
LAST_FAILURE, FAILURES, READINESS, STATS = "lastTaskFailure", "failures", "readiness", "taskStats"
ENDS, WARNINGS = "ends", "warnings"  # extensions to Marathon
STATES: Final = {
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
_UNHEALTHY: Final = "Task was killed since health check failed. Reason: "  # clients search for this text


@dataclass(frozen=True, slots=True)
class Launch:
    """A task of an app that has not ended, and its instance."""

    job: Job
    task: Task
    healths: Sequence[CheckHealth] = ()  # results of each check that the scheduler makes
    readiness: Readiness | None = None  # latest result of the readiness check
    checked: Checked | None = None  # latest result of the check that has no effect on the task
    volumes: Sequence[Mapping[str, str]] = ()  # persistent volumes, as `local_volumes` writes them

    @property
    def state(self) -> str:
        """State in Mesos' words."""
        return STATES[self.task.state]


@dataclass(frozen=True, slots=True)
class Ended:
    """Repeated ends of an app's instances that neither a user nor the scheduler caused.

    Attributes:
        ends: Number of these ends in a row, the latest one, and the delay that follows.
        task: Task of the instance that ended last; None if its record is gone.
        crashing: Whether the app counts as crashing.
    """

    ends: Ends
    task: Task | None
    crashing: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about an app at one moment."""

    app: App
    info: VersionInfo
    launches: tuple[Launch, ...] = ()
    deployments: tuple[str, ...] = ()  # ids of deployments that change the app
    failure: tuple[Job, Task | None] | None = None  # the instance that failed last
    ended: Ended | None = None  # None unless requested and an instance ended by itself


def facts_of(
    view: View, apps: Iterable[App], sight: AppSight, *, failures: bool = False, ends: bool = False
) -> list[Facts]:
    """Return the visible facts of those apps that are visible.

    Args:
        view: State to which the apps belong.
        sight: Visibility for the caller.
        failures: Whether to include each app's last failure.
        ends: Whether to include ends of instances by themselves.
    """
    apps = [app for app in apps if sight.sees(app)]
    read = frozenset(app.id for app in apps if sight.may(APP_READ, app))
    failed = last_failures(view, read) if failures else {}
    ended = ends_of(view, read) if ends else {}
    busy: dict[str, list[str]] = {}
    for deployment in view.deployments.values():
        for id in deployment.plan.affected:
            busy.setdefault(id, []).append(deployment.id)
    return [
        Facts(
            sight.shown(app),
            view.catalog.versions[app.id],
            launches_of(view, app, sight),
            tuple(busy.get(app.id, ())),
            _failure(view, failed.get(app.id)),
            _ended(view, app, ended.get(app.id)),
        )
        for app in apps
    ]


def launches_of(view: View, app: App, sight: AppSight) -> tuple[Launch, ...]:
    """Return the tasks of an app that have not ended; results of checks and volumes need the right to read the app."""
    tasks = [
        (job, task) for job in instances_of(view, app.id) for task in round_of(view, job) if not task.ended
    ]
    if not sight.may(APP_READ, app):
        return tuple(Launch(job, task) for job, task in tasks)
    return tuple(
        Launch(
            job,
            task,
            check_results(view, task.id),
            readiness_of(view, task.id),
            checked_of(view, task.id),
            local_volumes(app, [(mount.target, mount.source) for mount in persistent_of(job.spec.mounts)]),
        )
        for job, task in tasks
    )


def _ended(view: View, app: App, ends: Ends | None) -> Ended | None:
    """Return the facts about ends of an app's instances."""
    if ends is None:
        return None
    task = view.tasks.get(ends.last.task_id) if ends.last.task_id else None
    return Ended(ends, task, is_crashing(view, app, ends))


def _failure(view: View, job: Job | None) -> tuple[Job, Task | None] | None:
    """Return an instance that has failed, with its task."""
    if job is None:
        return None
    return job, view.tasks.get(job.task_id) if job.task_id else None


# --- JSON


def app_json(app: App, info: VersionInfo) -> dict[str, Any]:
    """Return the JSON of a definition with its version."""
    version = {
        "lastScalingAt": stamp(info.last_scaling_at),
        "lastConfigChangeAt": stamp(info.last_config_change_at),
    }
    return {**app_to_json(app), "version": stamp(info.version), "versionInfo": version}


def app_info(facts: Facts, embed: frozenset[str]) -> dict[str, Any]:
    """Return the JSON of a definition with the requested parts embedded."""
    body = app_json(facts.app, facts.info)
    if COUNTS in embed or FAILURES in embed:
        body.update(_counts(facts))
    if {DEPLOYMENTS, TASKS, FAILURES} & embed:  # tasks bring deployments along, as in Marathon
        body["deployments"] = [{"id": id} for id in facts.deployments]
    if TASKS in embed or FAILURES in embed:
        body["tasks"] = [task_json(facts.app, launch) for launch in facts.launches]
    if STATS in embed:
        body["taskStats"] = _stats_by_version(facts)
    if READINESS in embed:
        body["readinessCheckResults"] = readiness_json(facts.launches)
    if ENDS in embed and facts.ended is not None:
        body["ends"] = _ends_json(facts.app.id, facts.ended)
    if {LAST_FAILURE, FAILURES} & embed and facts.failure is not None:
        body["lastTaskFailure"] = _failure_json(facts.app.id, *facts.failure)
    return body


def _stats_by_version(facts: Facts) -> dict[str, Any]:
    """Return statistics of all tasks, of tasks since the last scaling, and of tasks with the latest or an older config.

    A part without tasks is left out.
    """
    info, now = facts.info, time.time()
    parts: dict[str, Callable[[float], bool]] = {
        "startedAfterLastScaling": lambda version: version >= info.last_scaling_at,
        "withLatestConfig": lambda version: version >= info.last_config_change_at,
        "withOutdatedConfig": lambda version: version < info.last_config_change_at,
        "totalSummary": lambda _: True,
    }
    chosen = {
        name: tuple(launch for launch in facts.launches if fits(launch.job.app_version or 0.0))
        for name, fits in parts.items()
    }
    return {
        name: {"stats": _stats(replace(facts, launches=launches), now)}
        for name, launches in chosen.items()
        if launches
    }


def _stats(facts: Facts, now: float) -> dict[str, Any]:
    """Return counts of tasks, and average and median of their running times in seconds."""
    names = {"tasksStaged": "staged", "tasksRunning": "running"}
    names |= {"tasksHealthy": "healthy", "tasksUnhealthy": "unhealthy"}
    stats: dict[str, Any] = {"counts": {names[key]: count for key, count in _counts(facts).items()}}
    began = [launch.task.started_at for launch in facts.launches if launch.task.started_at is not None]
    lives = sorted(max(0.0, now - at) for at in began)
    if lives:
        average_s, median_s = sum(lives) / len(lives), lives[len(lives) // 2]
        stats["lifeTime"] = {"averageSeconds": average_s, "medianSeconds": median_s}
    return stats


def _counts(facts: Facts) -> dict[str, int]:
    states = [launch.state for launch in facts.launches]
    healths = [launch.task.healthy for launch in facts.launches] if facts.app.health_checks else []
    return {
        "tasksStaged": sum(state in STAGED for state in states),
        "tasksRunning": states.count(RUNNING),
        "tasksHealthy": healths.count(True),
        "tasksUnhealthy": healths.count(False),
    }


def task_json(app: App, launch: Launch) -> dict[str, Any]:
    """Return the JSON of a task."""
    job, task = launch.job, launch.task
    body: dict[str, Any] = {
        "id": task.id,
        "appId": app.id,
        "host": task.hostname,
        "slaveId": task.agent_id,
        "state": launch.state,
        "ports": list(task.ports),
        "servicePorts": list(app.service_ports),
        "ipAddresses": [],
        "localVolumes": [*launch.volumes],
        "healthCheckResults": [],
        "stagedAt": stamp(task.launched_at),
        "role": app.role or "*",
    }
    if task.started_at is not None:
        body["startedAt"] = stamp(task.started_at)
    if job.app_version is not None:
        body["version"] = stamp(job.app_version)
    if app.health_checks and task.healthy is not None:
        instance = instance_of_job(job.id)
        of_task = {"taskId": task.id, "instanceId": instance}
        body["healthCheckResults"] = [health | of_task for health in _results_json(app, launch)]
    if app.check is not None and launch.checked is not None:
        body["checkResult"] = _checked_json(app.check, launch.checked)
    return body


def local_volumes(app: App, volumes: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Return the JSON of an instance's persistent volumes; `volumes`: path in the sandbox and id of each."""
    name = app.id.strip("/").replace("/", "_")
    return [
        {"runSpecId": app.id, "containerPath": path, "uuid": id, "persistenceId": f"{name}#{path}#{id}"}
        for path, id in volumes
    ]


def _checked_json(check: Check, checked: Checked) -> dict[str, Any]:
    """Return the JSON of the latest result of an app's `check`; a status or an exit code may be missing."""
    if check.tcp is not None:
        return {"tcp": {"succeeded": checked.ok}}
    kind, name = ("http", "statusCode") if check.http is not None else ("command", "exitCode")
    return {kind: {} if checked.code is None else {name: checked.code}}


def _results_json(app: App, launch: Launch) -> Iterator[dict[str, Any]]:
    """Yield the results of health checks.

    The result of a single check may be missing, as executors report only the sum, or the scheduler has just started.
    Then the task's health is given for it, so that load balancers do not take the task for unhealthy.
    """
    own = iter(launch.healths)
    for check in app.health_checks:
        health = None if check.protocol.by_executor else next(own, None)
        if health is None:
            yield {"alive": launch.task.healthy}
        elif health.alive is not None:
            yield _health_json(health)


def _health_json(health: CheckHealth) -> dict[str, Any]:
    moments = {
        "firstSuccess": health.first_success_s,
        "lastSuccess": health.last_success_s,
        "lastFailure": health.last_failure_s,
    }
    return {
        "alive": health.alive,
        "consecutiveFailures": health.consecutive_failures,
        **{name: stamp(at) for name, at in moments.items() if at is not None},
        **({"lastFailureCause": health.last_failure_cause} if health.last_failure_cause else {}),
    }


def readiness_json(launches: Iterable[Launch]) -> list[dict[str, Any]]:
    """Return the JSON of the readiness of an app's tasks."""
    return [
        {
            "name": readiness.name,
            "taskId": launch.task.id,
            "ready": readiness.ready,
            **_answer_json(readiness.answer),
        }
        for launch in launches
        if (readiness := launch.readiness) is not None
    ]


def _answer_json(answer: Answer | None) -> dict[str, Any]:
    if answer is None:
        return {}
    shown = {"status": answer.status, "contentType": answer.content_type, "body": answer.body}
    return {"lastResponse": shown}


def _failure_json(app_id: str, job: Job, task: Task | None) -> dict[str, Any]:
    return {
        "appId": app_id,
        "host": task.hostname if task else "",
        "message": f"{_UNHEALTHY}{task.unhealthy}" if task and task.unhealthy else job.message,
        "state": STATES[task.state] if task else "TASK_FAILED",
        "taskId": job.task_id or job.id,
        "timestamp": stamp(job.ended_at or 0.0),
        "version": stamp(job.app_version or 0.0),
        **({"slaveId": task.agent_id} if task else {}),
    }


def _ends_json(app_id: str, ended: Ended) -> dict[str, Any]:
    """Return the JSON of ends of instances, the last one in the form of a failure with its job and exit code."""
    ends = ended.ends
    last = _failure_json(app_id, ends.last, ended.task)
    return {
        "inARow": ends.in_a_row,
        "crashing": ended.crashing,
        "last": {**last, "jobId": ends.last.id, "exitCode": ends.last.exit_code},
        "nextAt": None if ends.next_at is None else stamp(ends.next_at),
    }


def group_json(
    group: Group, facts: Mapping[str, Facts], versions: Mapping[str, float], embed: frozenset[str]
) -> dict[str, Any]:
    """Return the JSON of a group and what is below it, as far as `embed` says; apps and groups are generators.

    Args:
        facts: Facts of its apps by id.
        versions: Versions of groups by id.
        embed: "apps", "groups", and parts of apps as "apps.tasks".
    """
    of_apps = frozenset(part.removeprefix("apps.") for part in embed if part.startswith("apps."))
    body: dict[str, Any] = {
        "id": group.id,
        "dependencies": list(group.dependencies),
        "version": stamp(versions.get(group.id, 0.0)),
    }
    body.update(enforced_to_json(group))
    if "apps" in embed or of_apps:
        body["apps"] = (app_info(facts[app.id], of_apps) for app in group.apps)
        body["pods"] = []
    if "groups" in embed:
        body["groups"] = (group_json(child, facts, versions, embed) for child in group.groups)
    return body


def steps_json(steps: Sequence[Sequence[Action]]) -> list[dict[str, Any]]:
    """Return the JSON of the steps of a plan."""
    return [{"actions": [_action_json(action) for action in step]} for step in steps]


def _action_json(action: Action) -> dict[str, Any]:
    return {"action": action.kind.value, "app": action.app.id}


def changes_json(old: Group, new: Group) -> list[dict[str, Any]]:
    """Return the JSON of each app that differs in `new`, before and after; null if it does not exist then."""
    before, after = ({app.id: app for app in root.all_apps()} for root in (old, new))
    ids = sorted(before.keys() | after.keys())
    return [
        {
            "id": id,
            "before": app_to_json(before[id]) if id in before else None,
            "after": app_to_json(after[id]) if id in after else None,
        }
        for id in ids
        if before.get(id) != after.get(id)
    ]


def warnings_json(old: Group, new: Group, missing: Mapping[tuple[str, ...], str]) -> list[dict[str, str]]:
    """Return warnings about new and changed apps and groups: fields without effect, and models that no node has.

    Each has the id of the app or group, the path of the field, and a message.

    Args:
        old: Tree of apps before the change.
        new: Tree of apps after the change.
        missing: Messages about models that no node has, by the models that apps name.
    """
    before = {app.id: app for app in old.all_apps()}
    changed = (app for app in new.all_apps() if before.get(app.id) != app)
    warned = (warning for app in changed for warning in _warnings_of(app, missing))
    return [*warned, *_warnings_of_groups(old, new)]


def _warnings_of(app: App, missing: Mapping[tuple[str, ...], str]) -> Iterator[dict[str, str]]:
    """Yield warnings about an app: GPU models that no node has, and fields without effect."""
    if app.gpus and (why := missing.get(gpu_options(app).models)):
        yield {"id": app.id, "path": "/gpu/models", "message": f"its instances wait: {why}"}
    report = Report()
    report_others(report, ((field.field, field.why) for field in without_effect(app, gpu_options(app))))
    for path, errors in report.found:
        yield from ({"id": app.id, "path": path, "message": error} for error in errors)


def _warnings_of_groups(old: Group | None, new: Group) -> Iterator[dict[str, str]]:
    if new.enforce_role and not (old and old.enforce_role):
        yield {"id": new.id, "path": "/enforceRole", "message": "all apps have the scheduler's role"}
    before = {group.id: group for group in old.groups} if old else {}
    for group in new.groups:
        yield from _warnings_of_groups(before.get(group.id), group)


def current_launches(view: View, deployment: Deployment, sight: AppSight) -> dict[str, Sequence[Launch]]:
    """Return the tasks of the apps that a deployment's current step changes."""
    step = deployment.plan.steps[deployment.step]
    return {action.app.id: launches_of(view, action.app, sight) for action in step}


def deployment_json(
    deployment: Deployment, *, waiting: bool, launches: Mapping[str, Sequence[Launch]] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the JSON of a deployment in progress.

    Args:
        waiting: Whether to add extensions to Marathon: why apps wait, which ones are overdue, and which deployment this
            one undoes. Clients that know every key refuse others, so that this must be requested.
        launches: Tasks as `current_launches` returns them.
    """
    steps = deployment.plan.steps
    current = [
        _action_json(action) | {"readinessCheckResults": readiness_json(launches.get(action.app.id, ()))}
        for action in steps[deployment.step]
    ]
    body = {
        "id": deployment.id,
        "version": stamp(deployment.version),
        "affectedApps": sorted(deployment.plan.affected),
        "affectedPods": [],
        "steps": steps_json(steps),
        "currentActions": current,
        "currentStep": deployment.step + 1,
        "totalSteps": len(steps),
    }
    if waiting:
        body["waiting"] = {app: why for app, why in deployment.waiting.items() if why}
        body["overdue"] = overdue(deployment.progress)
        body["undoes"] = deployment.undoes or None
    return body
