"""Conversion of events of apps to the types and JSON of Marathon 1.11's event bus."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from mesos_gpu.api.marathon import views
from mesos_gpu.model.apps import app_event
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.wire.marathon.group import group_to_json
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.shapes import HEALTH_CHECK

Json = dict[str, Any]
Printed = tuple[str, Json]  # an event's type, and its JSON


def events_of(event: app_event.AppEvent, *, light: bool) -> Iterator[Printed]:
    """Yield the events of Marathon for an event.

    Args:
        event: Event of an app or of the scheduler.
        light: Whether plans of deployments leave out the apps before and after them.
    """
    for kind, body in _bodies(event.what, light=light):
        yield kind, {**body, "eventType": kind, "timestamp": stamp(event.at)}


def _bodies(what: app_event.What, *, light: bool) -> Iterator[Printed]:
    """Yield types and bodies of Marathon's events for an event of the engine."""
    match what:
        case app_event.DeploymentMoved():
            yield what.stage.value, _moved(what, light=light)
        case app_event.InstanceChanged():
            yield "instance_changed_event", _instance_changed(what)
        case app_event.TaskChanged():
            yield "status_update_event", _status_update(what)
        case app_event.HealthChanged() | app_event.CheckFailed() | app_event.UnhealthyKilled():
            yield from _health_events(what)
        case app_event.ChecksAdded(app, version, check):
            body = {"appId": app, "version": stamp(version), "healthCheck": HEALTH_CHECK.write(check)}
            yield "add_health_check_event", body
        case app_event.ChecksRemoved(app):
            yield "remove_health_check_event", {"appId": app}
        case (
            app_event.AppTerminated()
            | app_event.StrangerEnded()
            | app_event.AppPosted()
            | app_event.GroupChanged()
        ):
            yield _app_event(what)
        case app_event.Registered() | app_event.Disconnected() | app_event.Attached():
            yield _scheduler_event(what)


def _instance_changed(what: app_event.InstanceChanged) -> Json:
    more = {"condition": what.condition, "agentId": what.agent_id, "host": what.host}
    return {**_instance(what.subject), **more}


def _instance(subject: app_event.Subject) -> Json:
    return {
        "instanceId": subject.instance,
        "runSpecId": subject.app,
        "runSpecVersion": stamp(subject.version),
    }


def _status_update(what: app_event.TaskChanged) -> Json:
    task = what.task
    return {
        "appId": what.subject.app,
        "taskId": task.id,
        "taskStatus": views.STATES[task.state],
        "message": task.message,
        "slaveId": task.agent_id,
        "host": task.hostname,
        "ports": list(task.ports),
        "ipAddresses": [],
        "version": stamp(what.subject.version),
    }


def _health_events(
    what: app_event.HealthChanged | app_event.CheckFailed | app_event.UnhealthyKilled,
) -> Iterator[Printed]:
    """Yield Marathon's events about the health of an instance."""
    subject = what.subject
    task_id = what.task.id if isinstance(what, app_event.UnhealthyKilled) else what.task_id
    body = {"appId": subject.app, "instanceId": subject.instance, "taskId": task_id}
    version = stamp(subject.version)
    match what:
        case app_event.CheckFailed():
            yield "failed_health_check_event", {**body, "healthCheck": HEALTH_CHECK.write(what.check)}
        case app_event.UnhealthyKilled():
            where = {"host": what.task.hostname, "slaveId": what.task.agent_id}
            yield (
                "unhealthy_instance_kill_event",
                {**body, "version": version, "reason": what.reason, **where},
            )
        case app_event.HealthChanged():
            if what.healthy is not None:
                yield "health_status_changed_event", {**body, "version": version, "alive": what.healthy}
            yield "instance_health_changed_event", {**_instance(subject), "healthy": what.healthy}


def _app_event(
    what: app_event.AppTerminated | app_event.StrangerEnded | app_event.AppPosted | app_event.GroupChanged,
) -> Printed:
    match what:
        case app_event.AppTerminated(app):
            return "app_terminated_event", {"appId": app}
        case app_event.StrangerEnded(app, instance, condition):
            return (
                "unknown_instance_terminated_event",
                {"instanceId": instance, "runSpecId": app, "condition": condition},
            )
        case app_event.AppPosted(client, uri, posted, info):
            shown = views.app_json(posted, info)
            return "api_post_event", {"clientIp": client, "uri": uri, "appDefinition": shown}
        case app_event.GroupChanged(group, version, problem):
            body = {"groupId": group, "version": stamp(version)}
            if problem:
                return "group_change_failed", {**body, "reason": problem}
            return "group_change_success", body


def _scheduler_event(what: app_event.Registered | app_event.Disconnected | app_event.Attached) -> Printed:
    match what:
        case app_event.Registered(None, master_url):
            return "scheduler_reregistered_event", {"master": master_url}
        case app_event.Registered(framework_id, master_url):
            return "scheduler_registered_event", {"frameworkId": framework_id, "master": master_url}
        case app_event.Disconnected():
            return "scheduler_disconnected_event", {}
        case app_event.Attached(client, left):
            return f"event_stream_{'detached' if left else 'attached'}", {"remoteAddress": client}


# --- deployments


def _moved(what: app_event.DeploymentMoved, *, light: bool) -> Json:
    deployment = what.deployment
    body = {"plan": _plan(deployment, light=light)}
    if what.stage in (app_event.Stage.DONE, app_event.Stage.FAILED):
        return {"id": deployment.id, **body}
    return {**body, "currentStep": body["plan"]["steps"][deployment.step]}


def _plan(deployment: Deployment, *, light: bool) -> Json:
    """Return the JSON of a deployment's plan; if `light`, without the apps before and after it."""
    plan = deployment.plan
    body = {"id": deployment.id, "version": stamp(deployment.version), "steps": views.steps_json(plan.steps)}
    if light:
        return body
    return {
        **body,
        "original": group_to_json(_only(plan.original, plan.affected)),
        "target": group_to_json(_only(plan.target, plan.affected)),
    }


def _only(group: Group, ids: Collection[str]) -> Group:
    """Return a group without the apps that a plan does not change: there may be a thousand of them."""
    inner = (_only(child, ids) for child in group.groups)
    return replace(
        group,
        apps=tuple(app for app in group.apps if app.id in ids),
        groups=tuple(child for child in inner if child.apps or child.groups),
    )
