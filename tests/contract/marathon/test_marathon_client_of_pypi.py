"""The Marathon client of PyPI drives an app's life: what it sends and reads is what tools out there do."""

import collections
import collections.abc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.local.stack import NodeSpec
from tests.conftest import wait_until
from tests.contract.decisions.site import site_of


@pytest.fixture
def url() -> Iterator[str]:
    with site_of([NodeSpec(2)] * 2, SystemClock()) as site:
        yield site.client.url


@pytest.fixture
def marathon(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(
        collections, "Iterable", collections.abc.Iterable, raising=False
    )  # gone since Python 3.10
    import marathon

    return marathon.MarathonClient(url)


def settled(marathon: Any) -> None:
    wait_until("the deployments are done", lambda: not marathon.list_deployments(), 60)


@pytest.fixture
def heard(marathon: Any) -> Iterator[list[Any]]:
    """Collect the events of the client's own stream meanwhile."""
    events: list[Any] = []
    ended = threading.Event()

    def listen() -> None:
        for event in marathon.event_stream():
            events.append(event)
            if ended.is_set():
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    wait_until("the stream", lambda: events)
    yield events
    ended.set()
    marathon.create_group(marathon_group("/last"))  # so that there is one more
    thread.join(60)
    marathon.sse_session.close()
    assert not thread.is_alive()


def marathon_group(id: str) -> Any:
    from marathon.models import MarathonGroup

    return MarathonGroup(id=id)


def test_marathon_client_creates_scales_restarts_and_deletes_an_app(marathon: Any, heard: list[Any]) -> None:
    from marathon.models import MarathonApp

    assert marathon.ping() == b'"pong"'
    made = marathon.create_app("my-app", MarathonApp(cmd="sleep 100", mem=32, cpus=0.1, instances=2, gpus=1))
    assert made.id == "/my-app"
    settled(marathon)
    assert [app.id for app in marathon.list_apps(embed_tasks=True, label=None)] == ["/my-app"]
    assert marathon.get_app("my-app").tasks_running == 2

    marathon.scale_app("my-app", instances=3)
    settled(marathon)
    first = marathon.list_tasks("my-app")
    assert len(first) == 3

    marathon.kill_task("my-app", first[0].id, scale=True)
    settled(marathon)
    left = {task.id for task in marathon.list_tasks("my-app")}
    assert left == {task.id for task in first[1:]}

    marathon.restart_app("my-app")
    settled(marathon)
    assert not left & {task.id for task in marathon.list_tasks("my-app")}
    versions = marathon.list_versions("my-app")
    assert len(versions) == 4
    assert marathon.get_version("my-app", versions[-1]).instances == 2

    assert marathon.list_queue() == []
    assert marathon.get_info().name == "mesos_gpu"
    assert marathon.get_leader()["leader"]
    marathon.delete_app("my-app")
    settled(marathon)
    assert marathon.list_apps() == []
    told_of_it(heard)


def told_of_it(heard: list[Any]) -> None:
    """The life above: created, scaled, one task killed, restarted, deleted."""
    wait_until(
        "its end", lambda: any(type(event).__name__ == "MarathonAppTerminatedEvent" for event in heard)
    )
    kinds = [type(event).__name__.removeprefix("Marathon") for event in heard]
    assert (kinds[0], kinds.count("AppTerminatedEvent")) == ("EventStreamAttached", 1)
    assert kinds.count("ApiPostEvent") == 2  # created, scaled
    wait_until("the last deployment", lambda: type(heard[-1]).__name__ == "MarathonDeploymentSuccess")
    done = [event for event in heard if type(event).__name__ == "MarathonDeploymentSuccess"]
    assert len({event.id for event in done}) == 5
    begun = [event for event in heard if type(event).__name__ == "MarathonDeploymentInfo"]
    assert [step.actions[0].action for step in begun[0].plan.steps] == [
        "StartApplication",
        "ScaleApplication",
    ]
    assert begun[0].plan.steps[0].actions[0].app == "/my-app"
    states = [event.task_status for event in heard if type(event).__name__ == "MarathonStatusUpdateEvent"]
    assert (states.count("TASK_RUNNING"), states.count("TASK_KILLED")) == (5, 5)
    changes = [event for event in heard if type(event).__name__ == "MarathonInstanceChangedEvent"]
    for condition, count in (("Scheduled", 5), ("Running", 5), ("Killed", 5)):
        assert [event.condition for event in changes].count(condition) == count
    assert {event.run_spec_id for event in changes} == {"/my-app"}


def test_marathon_client_creates_scales_and_deletes_a_group(marathon: Any) -> None:
    from marathon.models import MarathonGroup

    apps = [{"id": name, "cmd": "sleep 100", "cpus": 0.1, "mem": 32} for name in ("db", "web")]
    marathon.create_group(
        MarathonGroup(id="/shop", apps=[apps[0], {**apps[1], "dependencies": ["/shop/db"]}])
    )
    settled(marathon)
    assert [app.id for app in marathon.get_group("/shop").apps] == ["/shop/db", "/shop/web"]
    marathon.scale_group("/shop", 2)
    settled(marathon)
    assert len(marathon.list_tasks("/shop/web")) == 2
    marathon.delete_group("/shop")
    settled(marathon)
    assert marathon.list_apps() == []
