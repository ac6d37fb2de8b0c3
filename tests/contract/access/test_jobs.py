"""What names may see of each other's jobs, what they may do with them, and what they may ask for."""

from collections.abc import Iterator

import pytest
import requests

from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.jobs.users import Account
from tests.contract.access.named import JOB, Rig
from tests.contract.access.rig import AccessRig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def refused(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["message"]


def test_a_job_is_its_submitters_and_runs_as_the_unix_user_of_that_name(rig: Rig) -> None:
    job = rig.submit("ann").json()
    assert (job["owner"], job["user"], job["hidden"]) == ("ann", "ann", False)
    assert rig.submit("carl", queue="other").json()["user"] == "cc"
    assert rig.submit("boss", user="www").json()["user"] == "www"


def test_job_routes_answer_401_with_a_remedy_without_a_name(rig: Rig) -> None:
    for verb, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/gpus"), ("GET", "/metrics")):
        response = rig.call("", verb, path, json=JOB if verb == "POST" else None)
        assert response.status_code == 401
        assert "log in" in response.json()["error"]["remedy"]
    assert rig.call("", "GET", "/v1/health").status_code == 200


def test_job_of_another_shows_what_its_queue_shares(rig: Rig) -> None:
    job_id = rig.submit("ann").json()["id"]
    seen = rig.call("bob", "GET", f"/v1/jobs/{job_id}").json()
    assert seen["hidden"]
    assert "hunter2" not in str(seen)
    assert (seen["owner"], seen["queue"], seen["state"]) == ("ann", "research", "pending")
    assert rig.call("carl", "GET", f"/v1/jobs/{job_id}").status_code == 404
    assert rig.call("carl", "GET", f"/v1/why/{job_id}").status_code == 404
    assert rig.call("carl", "DELETE", f"/v1/jobs/{job_id}").status_code == 404
    assert rig.call("carl", "GET", "/v1/jobs").json() == {"jobs": [], "total": 0}
    assert rig.call("carl", "GET", "/v1/queue").json()["jobs"] == []
    assert "hunter2" not in rig.call("vera", "GET", "/v1/jobs").text
    assert [job["hidden"] for job in rig.call("ann", "GET", "/v1/jobs").json()["jobs"]] == [False]


def test_a_filter_finds_nothing_in_what_is_hidden(rig: Rig) -> None:
    rig.submit("ann")
    assert rig.call("bob", "GET", "/v1/jobs?label=secret%3Dhunter2").json()["total"] == 0
    assert rig.call("ann", "GET", "/v1/jobs?label=secret%3Dhunter2").json()["total"] == 1


def test_an_environment_is_its_owners(rig: Rig) -> None:
    job_id = rig.submit("ann").json()["id"]
    path = f"/v1/jobs/{job_id}"
    assert rig.call("ann", "GET", path).json()["env"] == {"TOKEN": "***"}
    assert rig.call("ann", "GET", path, params={"show_env": "true"}).json()["env"] == {"TOKEN": "hunter2"}
    assert rig.call("otto", "GET", path).json()["env"] == {"TOKEN": "***"}
    response = rig.call("otto", "GET", path, params={"show_env": "true"})
    assert refused(response) == (403, "otto lacks the right job:env in queue research")


def test_command_of_a_job_has_its_environment_for_its_owner(rig: Rig) -> None:
    path = f"/v1/jobs/{rig.submit('ann').json()['id']}/command"
    hidden = rig.call("ann", "GET", path).json()
    assert ' --env TOKEN="${TOKEN?}" ' in hidden["command"]
    assert hidden["request"]["env"] == {"TOKEN": "***"}
    shown = rig.call("ann", "GET", path, params={"show_env": "true"}).json()
    assert " --env TOKEN=hunter2 " in shown["command"]
    assert rig.call("otto", "GET", path).json() == hidden
    response = rig.call("otto", "GET", path, params={"show_env": "true"})
    assert refused(response) == (403, "otto lacks the right job:env in queue research")


@pytest.mark.parametrize(
    ("verb", "below", "right"),
    [("DELETE", "", "job:kill"), ("GET", "/logs", "job:output"), ("GET", "/command", "job:read"),
     ("PATCH", "", "job:resize"),
     ("DELETE", "/resize", "job:resize"), ("POST", "/checkpoint", "job:checkpoint"),
     ("PUT", "/keep", "job:keep"), ("DELETE", "/keep", "job:keep"),
     ("POST", "/exec", "job:exec"), ("POST", "/forward", "job:exec")],
)  # fmt: skip
def test_job_of_another_may_not_be_touched(rig: Rig, verb: str, below: str, right: str) -> None:
    job_id = rig.submit("ann").json()["id"]
    asked = {"/forward": {"ports": [80]}}.get(below, {"argv": ["true"]})
    body = {"PATCH": {"gpu_compute_pct": 50}, "POST": asked, "PUT": {"for_s": 60}}.get(verb)
    response = rig.call("bob", verb, f"/v1/jobs/{job_id}{below}", json=body)
    assert refused(response) == (403, f"bob lacks the right {right} in queue research")
    assert response.json()["error"]["remedy"].startswith("ask boss to bind")
    assert rig.call("ann", "GET", f"/v1/jobs/{job_id}").json()["state"] == "pending"


def test_job_task_messages_are_for_readers_of_its_output(rig: Rig) -> None:
    rig.node()
    path = f"/v1/jobs/{rig.submit('ann').json()['id']}"
    rig.status(rig.launched("ann", f"{path}/tasks"), "TASK_FAILED", message="hunter2: not found")
    for below in ("", "/tasks"):
        assert "hunter2: not found" in rig.call("ann", "GET", path + below).text
        assert rig.call("vera", "GET", path + below).status_code == 200
        assert "hunter2" not in rig.call("vera", "GET", path + below).text


def test_sentences_do_not_name_jobs_that_are_not_seen(rig: Rig) -> None:
    rig.node()
    held = rig.submit("ann", gpus=1).json()["id"]
    rig.status(rig.launched("ann", f"/v1/jobs/{held}/tasks"), "TASK_RUNNING")
    rig.offer(gpus=0)
    waits = rig.submit("carl", gpus=1, queue="other").json()["id"]
    for path in (f"/v1/why/{waits}", "/v1/queue"):
        assert held in rig.call("boss", "GET", path).text
        told = rig.call("carl", "GET", path).text
        assert held not in told
        assert "***" in told
        assert waits in told


def test_job_may_be_ended_by_its_owner_and_an_operator(rig: Rig) -> None:
    for name in ("ann", "otto"):
        job_id = rig.submit("ann").json()["id"]
        assert rig.call(name, "DELETE", f"/v1/jobs/{job_id}").status_code in (200, 202)


def test_a_queue_that_is_not_ones_own_is_refused(rig: Rig) -> None:
    answer = rig.submit("carl")
    assert refused(answer) == (403, "carl lacks the right job:run in queue research")
    assert answer.json()["error"]["remedy"].startswith("name another queue (")
    assert refused(rig.submit("vera")) == (403, "vera lacks the right job:run")


def test_job_refusal_tells_all_that_roles_do_not_allow(rig: Rig) -> None:
    asked = {
        "user": "ann",
        "image": "evil:1",
        "volumes": ["/etc:/etc", "/data/x:/x", "/data/../etc:/y"],
        "priority": 9,
    }
    response = rig.submit("rita", **asked)
    assert refused(response) == (403, "the roles of rita do not allow this")
    assert [problem["path"] for problem in response.json()["error"]["problems"]] == [
        "/user", "/image", "/volumes/0", "/volumes/2", "/priority", "/preemptible",
    ]  # fmt: skip
    allowed = {
        "user": "www",
        "image": "nginx:1",
        "volumes": ["/data/x:/x"],
        "priority": 5,
        "preemptible": True,
    }
    assert rig.submit("rita", **allowed).status_code == 201


def test_job_of_a_caller_without_a_unix_user_is_refused(rig: Rig) -> None:
    response = rig.submit("x@y", queue="default")
    assert response.status_code == 403
    assert response.json()["error"]["problems"][0]["path"] == "/user"


def test_reaching_the_control_plane_is_a_right_of_its_own(rig: Rig) -> None:
    asked = {"name": "lb", "control_access": ["api"]}
    assert rig.submit("ann", **asked).json()["error"]["problems"][0]["path"] == "/control_access"
    assert rig.submit("boss", **asked).status_code == 201


def test_operators_are_named_by_what_is_proved(rig: Rig) -> None:
    assert rig.call("ann", "POST", "/v1/nodes/h/drain", json={}).status_code == 403
    response = rig.call("otto", "POST", "/v1/nodes/h/drain", json={"by": "boss", "reason": "x"})
    assert response.status_code == 404  # no such node; the right is there


@pytest.fixture
def alike() -> Iterator[AccessRig]:
    """A scheduler whose hosts have the accounts of its own host, where bob has one and ann has none."""
    known = {"bob": Account("bob", 2000), "dora": Account("dora", 2001, frozenset({"docker"}))}
    rig = AccessRig(permits=Permits(account_of=known.get, same_accounts=True))
    names = ["ann", "bob", "carl", "dora"]
    rig.bind(
        {"names": names, "roles": ["user"]},
        {"names": ["boss"], "roles": ["admin"]},
        unix_users={"carl": "bob"},
    )
    yield rig
    rig.close()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plan/jobs"])
def test_job_whose_owner_has_no_account_is_refused_with_all_remedies(alike: AccessRig, path: str) -> None:
    request = {"command": "true", "queue": "default"}
    response = alike.call("ann", "POST", path, json=request)
    assert response.status_code == 422
    (problem,) = response.json()["error"]["problems"]
    assert problem["path"] == "/user"
    assert problem["reason"].startswith(
        "the job would run as ann, as it names no user: the hosts have no user ann; name a user that they have (--user)"
    )
    assert "unix_users" in problem["reason"]
    assert "--user-pool" in problem["reason"]
    refused = alike.call("dora", "POST", path, json=request)
    assert "dora is in the group docker" in refused.json()["error"]["problems"][0]["reason"]
    for name in ("bob", "carl"):
        assert alike.call(name, "POST", path, json=request).ok


def test_app_whose_owner_has_no_account_is_refused_with_all_remedies(alike: AccessRig) -> None:
    definition = {"id": "/ann/web", "cmd": "true", "cpus": 0.1, "mem": 32}
    response = alike.call("ann", "POST", "/v2/apps", json=definition)
    assert not response.ok
    assert "/ann/web/user" in response.text
    assert "the hosts have no user ann" in response.text
