"""Persistent volumes in Marathon's interface: what tasks name, what updates are refused, and `wipe`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon

VOLUME = {"containerPath": "data", "mode": "RW", "persistent": {"type": "root", "size": 10}}
CONTAINER = {"type": "MESOS", "volumes": [VOLUME]}


@pytest.fixture
def marathon() -> Iterator[Marathon]:
    marathon = Marathon()
    yield marathon
    marathon.close()


def instance_of(marathon: Marathon) -> str:
    def first() -> str | None:
        jobs = marathon.ask("GET", "/v1/jobs")["jobs"]
        return str(jobs[0]["id"]) if jobs else None

    id = wait_until("an instance waits", first)
    assert id is not None
    return id


def test_update_of_persistent_volumes_is_refused_and_names_the_app(marathon: Marathon) -> None:
    marathon.create("/db", container=CONTAINER)
    larger = {**VOLUME, "persistent": {"type": "root", "size": 20}}
    for volumes in ([larger], [VOLUME, {**VOLUME, "containerPath": "more"}]):
        said = marathon.ask(
            "PATCH", "/v2/apps/db?force=true", 422, json={"container": {**CONTAINER, "volumes": volumes}}
        )
        assert "/db: its persistent volumes cannot change" in str(said)
    marathon.ask("PATCH", "/v2/apps/db?force=true", json={"mem": 32})
    assert marathon.shown("/db")["container"]["volumes"][0]["persistent"]["size"] == 10


def test_waiting_instance_is_wiped_by_the_id_of_its_task(marathon: Marathon) -> None:
    marathon.create("/db", container=CONTAINER)
    job = instance_of(marathon)
    assert marathon.ask("GET", "/v2/apps/db/tasks")["tasks"] == []
    (shown,) = marathon.ask("GET", f"/v1/jobs/{job}")["volumes"]
    uuid = shown.removeprefix("persistent volume ").removesuffix(":data")
    marathon.ask("DELETE", f"/v2/apps/db/tasks/{job}.1", 404)
    marathon.ask(
        "DELETE", "/v2/apps/db/tasks/db.instance-00000000-0000-4000-8000-000000000000._app.1?wipe=true", 404
    )
    said: Any = marathon.ask("DELETE", f"/v2/apps/db/tasks/{job}.1?wipe=true")
    assert said["task"] == {
        "id": f"{job}.1",
        "appId": "/db",
        "localVolumes": [
            {"runSpecId": "/db", "containerPath": "data", "uuid": uuid, "persistenceId": f"db#data#{uuid}"}
        ],
    }
    assert marathon.ask("GET", f"/v1/jobs/{job}")["state"] == "killed"
