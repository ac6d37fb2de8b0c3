"""`up --secure`: Mesos asks everybody who they are, and lets nobody do more than their part; jobs run all the same."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from mesos_gpu.adapters.credentials import read
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, run
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.live_files import paths_below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
IMAGES = os.geteuid() == 0 and not dockerd.missing()

TOKEN = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    images = open_directory / "images"
    images.mkdir()
    if IMAGES:
        programs = ["sh", "echo", "env", "cat", "id"]
        save(images, "box:1", [busybox_layer(dockerd.busybox(), programs)], {"Env": ["PATH=/bin"]})
    with Stack(
        open_directory / "stack",
        [NodeSpec(2)],
        images=images if IMAGES else None,
        devices="mesos" if IMAGES else "",
        scheduler_arguments=["--role", "gpu", "--share-linger", "1", "--report-interval", "2"],
        secure=True,
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2) as client:
        yield client


def test_a_host_process_runs_with_a_gpu(client: Client) -> None:
    assert run(client, command="echo here", gpus=1) == ("finished", "here\n")


@pytest.mark.skipif(not IMAGES, reason=f"needs root and a static busybox: {dockerd.missing()}")
def test_an_image_runs_in_a_nested_container(client: Client) -> None:
    assert run(client, image="box:1", command="echo inside", gpus=1) == ("finished", "inside\n")


READS = [
    "/state",
    "/flags",
    "/metrics/snapshot",
    "/monitor/statistics",
    "/containers",
    "/files/read?path=/&offset=0",
]
MASTER_READS = [
    "/state",
    "/slaves",
    "/tasks",
    "/flags",
    "/metrics/snapshot",
    "/roles",
    "/quota",
    "/weights",
    "/frameworks",
]
CALLS = [
    "GET_STATE", "GET_FLAGS", "TEARDOWN", "RESERVE_RESOURCES", "DRAIN_AGENT", "MARK_AGENT_GONE", "LAUNCH_CONTAINER",
    "LAUNCH_NESTED_CONTAINER", "KILL_CONTAINER", "READ_FILE", "SET_LOGGING_LEVEL", "SUBSCRIBE",
]  # fmt: skip


def posted(url: str, body: object, who: str = "") -> int:
    """The status of a call; `who`: the value of Authorization."""
    headers = {"Accept": "application/json", **({"Authorization": who} if who else {})}
    return requests.post(url, json=body, headers=headers, timeout=60, stream=True).status_code


def header(stack: Stack, name: str) -> str:
    assert stack.secure is not None
    return read(stack.secure.directory / name).header


def test_requests_without_a_valid_secret_are_refused(stack: Stack) -> None:
    agent, master = stack.cluster.agents[0].url, stack.cluster.master.url
    wrong = "Basic " + "bWVzb3MtZ3B1OndvcmQ="
    urls = [f"{agent}{path}" for path in READS] + [f"{master}{path}" for path in MASTER_READS]
    calls = [f"{agent}/api/v1", f"{agent}/api/v1/executor", f"{master}/api/v1"]
    for who in ("", wrong, "Bearer e30.e30."):
        headers = {"Authorization": who} if who else {}
        got = {url: requests.get(url, headers=headers, timeout=60).status_code for url in urls}
        got |= {f"{url} {call}": posted(url, {"type": call}, who) for url in calls for call in CALLS}
        plain = [f"{master}{path}" for path in ("/teardown", "/api/v1/scheduler", "/reserve")]
        got |= {url: posted(url, {}, who) for url in plain}
        assert set(got.values()) == {401}, got


def test_page_of_the_master_is_served_to_all_and_browsers_ask_for_a_name(stack: Stack) -> None:
    master = stack.cluster.master.url
    page, state = requests.get(master, timeout=60), requests.get(f"{master}/state", timeout=60)
    assert (page.status_code, 'src="app/main.js"' in page.text) == (200, True)
    assert state.headers["WWW-Authenticate"] == 'Basic realm="mesos-master-readonly"'


def framework_of(stack: Stack) -> str:
    return str(stack.cluster.master.state()["frameworks"][0]["id"])


def test_principal_of_each_component_has_its_rights_alone(stack: Stack) -> None:
    agent, master = f"{stack.cluster.agents[0].url}/api/v1", f"{stack.cluster.master.url}/api/v1"
    teardown = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": framework_of(stack)}}}
    gone = {"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": {"value": stack.cluster.agents[0].id}}}
    loud = {"type": "SET_LOGGING_LEVEL", "set_logging_level": {"level": 1, "duration": {"nanoseconds": 1}}}
    alone = {
        "type": "LAUNCH_CONTAINER",
        "launch_container": {"container_id": {"value": "own"}, "command": {"value": "id"}},
    }
    sandbox = {"type": "READ_FILE", "read_file": {"path": "/", "offset": 0}}
    for who, url, body in (
        ("framework", master, teardown), ("agent", master, teardown), ("framework", master, gone),
        ("agent", master, gone), ("framework", agent, alone), ("operator", agent, alone), ("executor", agent, alone),
        ("framework", agent, loud), ("executor", agent, loud), ("framework", master, loud),
    ):  # fmt: skip
        assert posted(url, body, header(stack, who)) == 403, (who, body)
    assert posted(agent, {"type": "GET_FLAGS"}, header(stack, "executor")) == 200
    assert posted(agent, sandbox, header(stack, "executor")) in (403, 404)
    assert (
        posted(master, {"type": "GET_FLAGS"}, header(stack, "executor")) == 401
    )  # the master knows no executor
    assert posted(agent, {"type": "GET_FLAGS"}, header(stack, "agent")) == 401
    assert posted(agent, loud, header(stack, "operator")) == 200
    state = requests.get(
        f"{stack.cluster.agents[0].url}/state", headers={"Authorization": header(stack, "executor")}
    )
    assert state.json()["frameworks"] == []


def test_another_framework_does_not_register(stack: Stack) -> None:
    def subscribed(role: str) -> str:
        info = {
            "user": "root", "name": "other", "roles": [role], "principal": "mesos-gpu",
            "capabilities": [{"type": "MULTI_ROLE"}],
        }  # fmt: skip
        with requests.post(
            f"{stack.cluster.master.url}/api/v1/scheduler",
            json={"type": "SUBSCRIBE", "subscribe": {"framework_info": info}},
            headers={"Authorization": header(stack, "framework"), "Accept": "application/json"},
            stream=True,
            timeout=60,
        ) as response:
            return bytes(next(response.iter_content(400))).decode()

    assert "not authorized" in subscribed("other").lower()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_executors_token_is_good_for_its_own_container_only(stack: Stack, client: Client) -> None:
    jobs = [client.submit({"command": "sleep 600", "cpus": 0.1, "mem_mib": 64}) for _ in range(2)]
    try:
        for job in jobs:
            wait_until("it runs", lambda job=job: client.job(job["id"])["state"] == "running")  # type: ignore[misc]
        first, second = (environment_of(job["id"]) for job in jobs)
        token, own, other = first[TOKEN], *(
            os.path.basename(env["MESOS_DIRECTORY"]) for env in (first, second)
        )  # fmt: skip
        agent, bearer = stack.cluster.agents[0].url, f"Bearer {token}"

        def nested(parent: str) -> int:
            ident = {"value": "attempt", "parent": {"value": parent}}
            body = {"container_id": ident, "command": {"value": "exit 0"}}
            call = {"type": "LAUNCH_NESTED_CONTAINER", "launch_nested_container": body}
            return posted(f"{agent}/api/v1", call, bearer)

        assert (nested(other), nested(own)) == (403, 200)
        kill = {"container_id": {"value": other}}
        assert posted(f"{agent}/api/v1", {"type": "KILL_CONTAINER", "kill_container": kill}, bearer) == 403
        claims = {
            "framework_id": {"value": second["MESOS_FRAMEWORK_ID"]},
            "executor_id": {"value": second["MESOS_EXECUTOR_ID"]},
        }
        subscribe = {**claims, "type": "SUBSCRIBE", "subscribe": {}}
        assert posted(f"{agent}/api/v1/executor", subscribe, bearer) == 403
        assert (
            requests.get(f"{agent}/state", headers={"Authorization": bearer}, timeout=60).json()["frameworks"]
            == []
        )
        assert posted(f"{stack.cluster.master.url}/api/v1", {"type": "GET_STATE"}, bearer) == 401
    finally:
        for job in jobs:
            client.kill(job["id"])
            assert [*client.follow(job)][-1]["state"] == "killed"


def environment_of(job: str) -> dict[str, str]:
    """The environment of the executor that runs a job."""
    for process in psutil.process_iter():
        try:
            env = process.environ()
        except psutil.Error:
            continue
        if TOKEN in env and env.get("MESOS_EXECUTOR_ID", "").startswith(f"{job}."):
            return env
    raise AssertionError(f"no executor of {job}")


def test_secrets_are_in_no_argument_no_log_and_no_state(stack: Stack) -> None:
    secure = stack.secure
    assert secure is not None
    assert stat.S_IMODE(secure.directory.stat().st_mode) == 0o700
    files = list(secure.directory.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    words = [read(secure.directory / name).secret for name in ("framework", "agent", "operator", "executor")]
    words.append((secure.directory / "executors-key").read_text())
    assert len(set(words)) == 5
    below = (path for path in paths_below(stack.directory) if path.is_file())  # reading a FIFO would block
    kept = [path for path in below if secure.directory not in path.parents]
    kept += [Path(f"/proc/{p.pid}/{name}") for p in psutil.process_iter() for name in ("cmdline", "environ")]
    for path in kept:
        try:
            content = path.read_bytes()
        except OSError:  # it ended
            continue
        assert not [word for word in words if word.encode() in content], path


def test_executors_are_believed_again_after_their_agent_was_killed(stack: Stack, client: Client) -> None:
    job = client.submit({"command": "sleep 4; echo through", "cpus": 0.1, "mem_mib": 64})
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    stack.cluster.agents[0].restart()
    job = [job, *client.follow(job)][-1]
    assert (job["state"], len(client.tasks(job["id"]))) == ("finished", 1)
    assert client.logs(job["id"], stream="stdout", offset=0, length=100)["data"] == "through\n"


def test_shares_of_a_card_are_covered_by_a_reservation_of_the_role(stack: Stack, client: Client) -> None:
    """Reserving is in the access lists of Mesos for the role of the scheduler only."""
    job = client.submit({"command": "sleep 600", "gpus": 0.25, "cpus": 0.1, "mem_mib": 64})
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")

    def reserved() -> float:
        return sum(
            float(agent["reserved_resources"].get("gpu", {}).get("gpus", 0))
            for agent in stack.cluster.master.agents()
        )

    wait_until("its card is reserved", lambda: reserved() == 1, 60)
    client.kill(job["id"])
    wait_until("nothing is reserved", lambda: not reserved(), 60)
