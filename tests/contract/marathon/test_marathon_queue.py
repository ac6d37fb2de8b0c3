"""What waits, and text for scripts, by Marathon's interface."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.api.marathon.queue import _summary
from mesos_gpu.engine.reading.apps import launch_delays
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import NodeReasons, Stage, Why
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon

TEXT = {"Accept": "text/plain"}


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def queue(rig: Marathon) -> list[Any]:
    entries: list[Any] = rig.ask("GET", "/v2/queue")["queue"]
    return entries


def test_an_app_that_fails_waits_until_its_delay_is_reset(rig: Marathon) -> None:
    rig.create("/a", backoffSeconds=5000, maxLaunchDelaySeconds=100_000, backoffFactor=2.0)
    (task,) = rig.tasks("/a", 1)
    rig.settled()
    assert queue(rig) == []
    rig.ask("DELETE", "/v2/queue/a/delay", 404)
    rig.status(task["id"], "TASK_FAILED")
    (entry,) = wait_until("it waits", lambda: queue(rig))
    assert (entry["app"]["id"], entry["count"]) == ("/a", 1)
    assert entry["since"].startswith("1970-01-01T00:1")  # when it failed, not when it may start
    assert rig.call("DELETE", "/v2/queue//a/delay").status_code == 204
    (again,) = rig.tasks("/a", 1)
    assert again["id"] == task["id"].removesuffix("1") + "2", "it is the same instance, started again"
    assert queue(rig) == []
    unknown = rig.ask("DELETE", "/v2/queue/b/c/delay", 404)
    assert unknown == {"message": "Application /b/c not found in tasks queue."}
    rig.ask("DELETE", "/v2/queue", 405)


REASONS = [
    "UnfulfilledRole",
    "UnfulfilledConstraint",
    "NoCorrespondingReservationFound",
    "AgentMaintenance",
    "InsufficientCpus",
    "InsufficientMemory",
    "InsufficientDisk",
    "InsufficientGpus",
    "InsufficientPorts",
    "DeclinedScarceResources",
]


def test_the_whole_funnel_is_told_with_its_zeros_and_the_offers(rig: Marathon) -> None:
    rig.create("/ports", portDefinitions=[{"port": 9}], requirePorts=True)
    rig.create("/cpus", cpus=99)
    rig.create("/gpus", gpus=1)
    rig.create("/late", backoffSeconds=5000, maxLaunchDelaySeconds=100_000)
    (task,) = rig.tasks("/late", 1)
    rig.status(task["id"], "TASK_FAILED")
    lacks = {
        "/ports": "InsufficientPorts",
        "/cpus": "InsufficientCpus",
        "/gpus": "InsufficientGpus",
        "/late": "",
    }

    def waiting() -> dict[str, Any] | None:
        rig.offers()
        entries = rig.ask("GET", "/v2/queue?embed=lastUnusedOffers")["queue"]
        whole = {entry["app"]["id"]: entry for entry in entries}
        return whole if whole.keys() == lacks.keys() and whole["/cpus"]["lastUnusedOffers"] else None

    for id, entry in (wait_until("all wait", waiting) or {}).items():
        summary, lack = entry["processedOffersSummary"], lacks[id]
        for name in ("rejectSummaryLastOffers", "rejectSummaryLaunchAttempt"):
            assert [each["reason"] for each in summary[name]] == REASONS, (id, "those of nothing, too")
            assert {each["reason"]: each["declined"] for each in summary[name] if each["declined"]} == (
                {lack: 1} if lack else {}
            ), id
            last = summary[name][-1]
            assert last["processed"] == (0 if lack or id == "/late" else 1)
        if lack:
            (unused,) = [each for each in entry["lastUnusedOffers"] if each["reason"] == [lack]][-1:]
            assert (unused["offer"]["agentId"], unused["offer"]["hostname"]) == ("a1", "a1.example")
            resources = {each["name"]: each for each in unused["offer"]["resources"]}
            assert (resources["cpus"]["scalar"], resources["cpus"]["role"]) == (16, "*")
            assert resources["ports"]["ranges"]
        else:
            assert entry["lastUnusedOffers"] == []
    assert "lastUnusedOffers" not in queue(rig)[0]


def test_gpus_that_are_kept_for_others_are_scarce(rig: Marathon) -> None:
    assert _summary(None)["processedOffersCount"] == 0
    nodes = tuple(
        NodeReasons(f"h{i}", AgentId(f"a{i}"), ("",) if stage else (), stage)
        for i, stage in enumerate((Stage.SCARCE, Stage.KEPT, Stage.OFFER, Stage.DRIVER, None))
    )
    summary = _summary(Why(JobId("j"), JobState.PENDING, "", 0, True, nodes))
    assert (summary["processedOffersCount"], summary["unusedOffersCount"]) == (4, 3), (
        "nothing was offered of one"
    )
    declined = {each["reason"]: each["declined"] for each in summary["rejectSummaryLastOffers"]}
    assert (declined["DeclinedScarceResources"], declined["InsufficientGpus"]) == (2, 1)


def test_a_delay_that_is_reset_begins_anew(rig: Marathon) -> None:
    """Marathon's factor counts failures in a row, and those before the reset are forgotten."""
    rig.create("/a", backoffSeconds=5000, maxLaunchDelaySeconds=100_000, backoffFactor=10.0)
    for _ in range(2):
        (task,) = rig.tasks("/a", 1)
        rig.status(task["id"], "TASK_FAILED")
        wait_until("it waits", lambda: queue(rig))
        delay = rig.daemon.read(lambda view: launch_delays(view)["/a"]).result(60)
        assert delay.until - delay.since == 5000
        assert rig.call("DELETE", "/v2/queue/a/delay").status_code == 204


def test_tasks_as_text(rig: Marathon) -> None:
    rig.create("/shop/web", instances=2, portDefinitions=[{"port": 8000}, {"port": 8001}])
    tasks = rig.tasks("/shop/web", 2)
    rig.create("/plain", portDefinitions=[])
    rig.tasks("/plain", 1)
    web = [
        "\t".join(["shop_web", port, *sorted(f"a1.example:{task['ports'][i]}" for task in tasks)]) + "\t"
        for i, port in enumerate(("8000", "8001"))
    ]
    answer = rig.call("GET", "/v2/apps/shop/web/tasks", headers=TEXT)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.text.splitlines() == web
    lines = rig.call("GET", "/v2/tasks", headers=TEXT).text.splitlines()
    assert sorted(lines) == sorted([*web, "plain\t \ta1.example\t"])
    assert rig.call("GET", "/v2/apps/nobody/tasks", headers=TEXT).status_code == 404
    for accept in ("*/*", "application/json, text/plain"):
        assert rig.call("GET", "/v2/tasks", headers={"Accept": accept}).json()["tasks"]


def test_marathon_leader_cannot_abdicate_without_a_standby(rig: Marathon) -> None:
    assert "restart its process" in rig.ask("DELETE", "/v2/leader", 409)["message"]
    assert rig.ask("GET", "/v2/leader") == {"leader": "w"}
