"""Visibility of events of apps."""

from collections.abc import Mapping
from dataclasses import replace

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import APP_READ, APP_SEE, AUDIT_SEE
from mesos_gpu.api.sight.apps import AppSight, subject_of
from mesos_gpu.model.apps import app_event as ev
from mesos_gpu.model.apps.app import App
from mesos_gpu.wire.job_fields import HIDDEN


def heard_by(sight: AppSight, event: ev.AppEvent, apps: Mapping[str, App]) -> ev.AppEvent | None:
    """Return an event without hidden fields; None if it is invisible.

    Args:
        sight: Visibility for the listener.
        apps: Existing apps by id; a removed app counts as without owner.
    """
    what = _heard(sight, event.what, apps)
    return event if what is event.what else None if what is None else replace(event, what=what)


def _heard(sight: AppSight, what: ev.What, apps: Mapping[str, App]) -> ev.What | None:
    """Return the visible part of an event; None if it is invisible."""
    match what:
        case ev.Registered() | ev.Disconnected():
            return what
        case ev.Attached():
            return what if sight.rights.may(AUDIT_SEE) else None
        case ev.GroupChanged():
            return what if _sees_below(sight, what.group, apps) else None
        case ev.DeploymentMoved():
            return _moved(sight, what)
        case ev.AppPosted():
            if not sight.sees(what.app):
                return None
            client = what.client if sight.rights.may(AUDIT_SEE) else ""
            return replace(what, app=sight.shown(what.app), client=client)
        case ev.TaskChanged() | ev.UnhealthyKilled():
            return _task_event(sight, what, apps)
        case ev.InstanceChanged() | ev.HealthChanged():
            return what if sight.rights.may(APP_SEE, _subject(what.subject.app, apps)) else None
        case ev.CheckFailed():  # contains the check from the app's definition
            return what if sight.rights.may(APP_READ, _subject(what.subject.app, apps)) else None
        case ev.ChecksAdded():
            return what if sight.rights.may(APP_READ, _subject(what.app, apps)) else None
        case ev.ChecksRemoved() | ev.AppTerminated() | ev.StrangerEnded():
            return what if sight.rights.may(APP_SEE, _subject(what.app, apps)) else None


def _task_event(
    sight: AppSight, what: ev.TaskChanged | ev.UnhealthyKilled, apps: Mapping[str, App]
) -> ev.What | None:
    """Return an event of a task, whose message is hidden unless the listener may read the app."""
    subject = _subject(what.subject.app, apps)
    if not sight.rights.may(APP_SEE, subject):
        return None
    if sight.rights.may(APP_READ, subject):
        return what
    task = replace(what.task, message=HIDDEN)
    return (
        replace(what, task=task)
        if isinstance(what, ev.TaskChanged)
        else replace(what, task=task, reason=HIDDEN)
    )


def _moved(sight: AppSight, what: ev.DeploymentMoved) -> ev.What | None:
    """Return a deployment's event with its visible part; None if it is invisible.

    An event of a deployment without steps is visible to all.
    """
    if not what.deployment.plan.steps:
        return what
    deployment = sight.deployment(what.deployment)
    return None if deployment is None else replace(what, deployment=deployment)


def _sees_below(sight: AppSight, group: str, apps: Mapping[str, App]) -> bool:
    prefix = group.rstrip("/") + "/"
    return sight.may_write_below(group) or any(
        sight.sees(app) for app in apps.values() if app.id.startswith(prefix)
    )


def _subject(app_id: str, apps: Mapping[str, App]) -> Subject:
    app = apps.get(app_id)
    return subject_of(app) if app else Subject(app=app_id)
