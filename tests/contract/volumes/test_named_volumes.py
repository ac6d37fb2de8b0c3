"""Named volumes over the interface: who sees them, who removes them, and what is refused."""

from collections.abc import Iterator
from typing import Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Inventory, VolumeRoot
from mesos_gpu.wire.mesos import report
from tests.contract import rig as open_rig
from tests.contract.access.named import Rig
from tests.doubles.builders import gpu, offer

DATA: Final = {"name": "data", "path": "data", "size": "1GiB"}
ALL: Final = "/v1/volumes?all_users=true"


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def names(rig: Rig, who: str, path: str = "/v1/volumes") -> list[tuple[str, str, int]]:
    response = rig.call(who, "GET", path)
    assert response.status_code == 200, response.text
    return [(each["owner"], each["name"], len(each["jobs"])) for each in response.json()["volumes"]]


def launch(rig: Rig) -> None:
    """Let a node that keeps volumes come up and launch what waits."""
    rig.offer()
    monitor = rig.daemon.read(lambda view: view.nodes[AgentId("a1")].monitor).result(60)
    inventory = Inventory((gpu("g0"),), "simulated", "535", "12.2", volumes=VolumeRoot())
    rig.status(str(monitor), "TASK_RUNNING", data=report.encode(inventory))
    rig.daemon.put(ev.OffersArrived((offer("disk", "a1", disk=4096),)))


def test_volume_belongs_to_its_submitter_and_is_seen_by_those_who_read_all_jobs(rig: Rig) -> None:
    job = rig.submit("ann", volumes=[DATA]).json()
    assert job["volumes"] == [{**DATA, "read_only": False}]
    rig.submit("carl", queue="other", volumes=[{**DATA, "size": 7}])
    assert names(rig, "ann") == [("ann", "data", 1)]
    assert names(rig, "carl") == [("carl", "data", 1)]
    assert names(rig, "bob") == []
    both = [("ann", "data", 1), ("carl", "data", 1)]
    for who in ("boss", "otto"):
        assert names(rig, who, ALL) == both
    for who in ("ann", "bob", "vera"):
        assert rig.call(who, "GET", ALL).status_code == 403
    (volume,) = rig.call("ann", "GET", "/v1/volumes").json()["volumes"]
    assert (volume["jobs"], volume["size_mib"], volume["hostname"]) == ([job["id"]], 1024, None)
    assert (volume["used_at"], volume["removing"], volume["user"]) == (None, False, "ann")


def test_volume_is_removed_by_its_owner_or_by_those_who_end_all_jobs(rig: Rig) -> None:
    job = rig.submit("ann", volumes=[DATA]).json()["id"]
    launch(rig)
    rig.submit("carl", queue="other", volumes=[{**DATA, "size": 7}])
    refused = rig.call("ann", "DELETE", "/v1/volumes/data")
    assert refused.status_code == 409
    assert job in refused.json()["error"]["message"]
    assert rig.call("bob", "DELETE", "/v1/volumes/data").status_code == 404
    assert rig.call("bob", "DELETE", "/v1/volumes/data?user=ann").status_code == 403
    assert rig.call("vera", "DELETE", "/v1/volumes/data?user=ann").status_code == 403
    assert rig.call("otto", "DELETE", "/v1/volumes/data?user=ann").status_code == 409
    assert rig.call("otto", "DELETE", "/v1/volumes/data").status_code == 404
    rig.status(f"{job}.1", "TASK_FINISHED")
    removed = rig.call("ann", "DELETE", "/v1/volumes/data?user=ann").json()
    assert (removed["removing"], removed["hostname"]) == (True, "a1.example")
    listed = rig.call("ann", "GET", "/v1/volumes").json()["volumes"]
    assert [(each["name"], each["removing"], each["jobs"]) for each in listed] == [("data", True, [])]
    assert rig.call("ann", "DELETE", "/v1/volumes/data").status_code == 404, "once is enough"


@pytest.mark.parametrize("name", ["..%2Fdata", "a.b", "A", "%00", "a" * 64])
def test_name_that_no_volume_can_have_is_refused(rig: Rig, name: str) -> None:
    assert rig.call("ann", "DELETE", f"/v1/volumes/{name}").status_code in (404, 422)


def test_refused_volume_names_its_field_and_leaves_nothing(rig: Rig) -> None:
    response = rig.submit("ann", volumes=["/data:/data", {**DATA, "size": "101GiB"}])
    assert response.status_code == 403, "the roles do not allow a path of the host"
    response = rig.submit("ann", volumes=[DATA, {"name": "more", "path": "more", "size": "100GiB"}])
    (problem,) = response.json()["error"]["problems"]
    assert (response.status_code, problem["path"]) == (422, "/volumes/0/size")
    assert "ann has 0 MiB in 0 volumes, and 102400 MiB are allowed" in problem["reason"]
    assert "--user-volumes" in response.json()["error"]["remedy"]
    assert names(rig, "ann") == []


def test_job_without_a_user_gets_no_volume_where_each_launch_has_another_uid() -> None:
    rig = open_rig.Rig(has_user_pool=True)
    try:
        response = rig.call("POST", "/v1/jobs", json={"command": "true", "volumes": [DATA]})
        assert response.status_code == 422
        assert response.json()["error"]["problems"][0]["path"] == "/user"
        rig.submit(user="ann", volumes=[DATA])
    finally:
        rig.close()


def test_volumes_of_several_users_need_the_user_where_nobody_is_asked_for_a_name() -> None:
    rig = open_rig.Rig()
    try:
        jobs = [rig.submit(user=user, volumes=[DATA])["id"] for user in ("ann", "bob")]
        listed = rig.call("GET", "/v1/volumes").json()["volumes"]
        assert [each["owner"] for each in listed] == ["ann", "bob"]
        for job in jobs:
            rig.call("DELETE", f"/v1/jobs/{job}")
        several = rig.call("DELETE", "/v1/volumes/data")
        assert (several.status_code, "ann, bob have" in several.text) == (409, True)
        assert rig.call("DELETE", "/v1/volumes/data?user=ann").status_code == 202
        assert rig.call("DELETE", "/v1/volumes/data").status_code == 202
        assert rig.call("DELETE", "/v1/volumes/data").status_code == 404
    finally:
        rig.close()
