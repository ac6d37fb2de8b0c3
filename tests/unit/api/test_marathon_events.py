"""The JSON of events, as the Marathon client of PyPI reads it."""

import json

from marathon.models.events import EventFactory

from mesos_gpu.api.marathon.happenings import events_of
from mesos_gpu.model.apps import happening as hp
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.apps.service import Deployment
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


def test_the_client_of_pypi_reads_every_event_that_it_knows() -> None:
    check = HealthCheck(Protocol.HTTP, path="/", port_index=0)
    app, info = App("/g/a", cmd="true", health_checks=(check,)), VersionInfo(1.0, 1.0, 1.0)
    root = Group("/", groups=(Group("/g", (app,), enforce_role=True),))
    deployment = Deployment("d", 1.0, plan(Group("/"), root))
    subject, id = hp.Subject("/g/a", "g_a.instance-1", 1.0), TaskId("g_a.instance-1._app.1")
    task = Task(id, AgentId("a1"), "e", None, TaskState.RUNNING, 1.0, hostname="host", ports=(31000,))
    samples: list[hp.What] = [
        hp.InstanceChanged(subject, "Running", AgentId("a1"), "host"),
        hp.TaskChanged(subject, task),
        hp.HealthChanged(subject, id, False),
        hp.CheckFailed(subject, id, check),
        hp.UnhealthyKilled(subject, task, "because"),
        hp.ChecksAdded("/g/a", 1.0, check),
        hp.ChecksRemoved("/g/a"),
        hp.AppTerminated("/g/a"),
        hp.GroupChanged("/g", 1.0),
        hp.GroupChanged("/g", 1.0, "it is locked"),
        hp.StrangerEnded("/g/a", "g_a.instance-1", "Killed"),
        hp.AppPosted("127.0.0.1", "/v2/apps", app, info),
        hp.Attached("127.0.0.1"),
        hp.Attached("127.0.0.1", left=True),
        *(hp.DeploymentMoved(stage, deployment) for stage in hp.Stage),
    ]
    read = set()
    for what in samples:
        for kind, body in events_of(hp.Happening(1.0, what), light=False):
            event = EventFactory().process(json.loads(json.dumps(body)))
            known = set(type(event).KNOWN_ATTRIBUTES) - EMPTY - DROPPED.get(kind, set())
            assert known <= {name for name, value in vars(event).items() if value is not None}, kind
            read.add(kind)
    assert read == set(EventFactory.event_to_class) - NOT_HERE
