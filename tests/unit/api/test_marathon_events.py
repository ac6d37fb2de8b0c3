"""The JSON of events, as the Marathon client of PyPI reads it."""

import json

from marathon.models.events import EventFactory

from mesos_gpu.api.marathon.event_bodies import events_of
from mesos_gpu.model.apps import app_event
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.rollout.plan import plan

#: The client's attributes of which it skips what is empty or false.
EMPTY = {"ip_addresses", "message", "alive", "healthy"}
#: What Marathon 1.11 does not send either, by event.
DROPPED = {
    "instance_changed_event": {"slave_id"},
    "remove_health_check_event": {"health_check"},
    "health_status_changed_event": {"health_check"},
}
NOT_HERE = {
    "framework_message_event",
    "subscribe_event",  # and the next: HTTP callbacks, which Marathon dropped
    "unsubscribe_event",
    "unhealthy_task_kill_event",  # an earlier name of unhealthy_instance_kill_event
    "pod_created_event",
    "pod_updated_event",
    "pod_deleted_event",
}


def test_marathon_client_of_pypi_reads_each_known_event() -> None:
    check = HealthCheck(Protocol.HTTP, path="/", port_index=0)
    app, info = App("/g/a", cmd="true", health_checks=(check,)), VersionInfo(1.0, 1.0, 1.0)
    root = Group("/", groups=(Group("/g", (app,), enforce_role=True),))
    deployment = Deployment("d", 1.0, plan(Group("/"), root))
    subject, id = app_event.Subject("/g/a", "g_a.instance-1", 1.0), TaskId("g_a.instance-1._app.1")
    task = Task(id, AgentId("a1"), "e", None, TaskState.RUNNING, 1.0, hostname="host", ports=(31000,))
    samples: list[app_event.What] = [
        app_event.InstanceChanged(subject, "Running", AgentId("a1"), "host"),
        app_event.TaskChanged(subject, task),
        app_event.HealthChanged(subject, id, False),
        app_event.CheckFailed(subject, id, check),
        app_event.UnhealthyKilled(subject, task, "because"),
        app_event.ChecksAdded("/g/a", 1.0, check),
        app_event.ChecksRemoved("/g/a"),
        app_event.AppTerminated("/g/a"),
        app_event.GroupChanged("/g", 1.0),
        app_event.GroupChanged("/g", 1.0, "it is locked"),
        app_event.StrangerEnded("/g/a", "g_a.instance-1", "Killed"),
        app_event.AppPosted("127.0.0.1", "/v2/apps", app, info),
        app_event.Attached("127.0.0.1"),
        app_event.Attached("127.0.0.1", left=True),
        *(app_event.DeploymentMoved(stage, deployment) for stage in app_event.Stage),
    ]
    read = set()
    for what in samples:
        for kind, body in events_of(app_event.AppEvent(1.0, what), light=False):
            event = EventFactory().process(json.loads(json.dumps(body)))
            known = set(type(event).KNOWN_ATTRIBUTES) - EMPTY - DROPPED.get(kind, set())
            assert known <= {name for name, value in vars(event).items() if value is not None}, kind
            read.add(kind)
    assert read == set(EventFactory.event_to_class) - NOT_HERE
