"""What Mesos' fetcher puts into sandboxes, and what Mesos is told of tasks, on real Mesos."""

import functools
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.processes import get_json
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@dataclass
class Web:
    """A web server of a directory. What is below /slow is answered when it ends."""

    directory: Path
    asked: list[str] = field(default_factory=list)  # paths of GET
    ending: threading.Event = field(default_factory=threading.Event)
    url: str = ""


class Handler(SimpleHTTPRequestHandler):
    """A handler of a Web's requests."""

    def __init__(self, web: Web, *args: Any) -> None:
        self.web = web
        super().__init__(*args, directory=str(web.directory))

    def do_GET(self) -> None:
        self.web.asked.append(self.path)
        if self.path.startswith("/slow"):
            self.web.ending.wait(60)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        yield client


@pytest.fixture(scope="module")
def web(open_directory: Path) -> Iterator[Web]:
    web = Web(open_directory / "web")
    web.directory.mkdir()
    (web.directory / "script").write_text("#!/bin/sh\necho I am $(id -un)\n")
    (web.directory / "secret").write_text("of root")
    (web.directory / "secret").chmod(0o600)
    with tarfile.open(web.directory / "model.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("model/weights")
        member.size = 7
        archive.addfile(member, io.BytesIO(b"weights"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, web))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield web
    web.ending.set()
    server.shutdown()
    thread.join()
    server.server_close()


def submit(client: Client, command: str, fetch: list[object]) -> Job:
    job = {"name": "fetches", "command": command, "cpus": 0.1, "mem_mib": 32, "fetch": fetch}
    return client.submit(job)


def run(client: Client, command: str, fetch: list[object]) -> Job:
    job = submit(client, command, fetch)
    return [job, *client.follow(job)][-1]


def said(client: Client, job: Job) -> str:
    return client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]


def test_fetched_files_are_there_before_the_command_and_belong_to_its_user(client: Client, web: Web) -> None:
    program: object = {"uri": f"file://{web.directory}/script", "executable": True, "dest_path": "bin/hello"}
    job = run(
        client,
        "cat model/weights && ./bin/hello && "
        "find . -path ./containers -prune -o -user root ! -name '.*mesos-gpu-times*' -print && id -un",
        [f"{web.url}/model.tgz", program],
    )
    assert job["state"] == "finished", job["message"]
    lines = said(client, job).splitlines()
    user = lines[-1]
    own = {".", "./stdout", "./stderr", "./executor.log"} if os.geteuid() == 0 else set()
    assert {*lines[1:-1]} == own, "the executor's own stay so"
    assert (lines[0], user) == (f"weightsI am {user}", "nobody")


def test_fetched_files_are_in_each_task_of_a_gang(client: Client, web: Web) -> None:
    gang = {"command": "cat script", "tasks": 2, "cpus": 0.1, "mem_mib": 32, "disk_mib": 10}
    job = client.submit({"name": "gang", "fetch": [f"{web.url}/script"], **gang})
    job = [job, *client.follow(job)][-1]
    assert (job["state"], said(client, job)[:9]) == ("finished", "#!/bin/sh"), job["message"]


def test_file_is_fetched_again_for_each_task(client: Client, web: Web) -> None:
    """Whatever `cache` says: the agent's cache is filled outside the task's cage."""
    path = web.directory / "cached"
    for text in ("first", "second"):
        path.write_text(text)
        job = run(client, "cat cached; cat script", [
            {"uri": f"file://{path}", "cache": True},
            {"uri": f"{web.url}/script?cached", "cache": True, "dest_path": "script"},
        ])  # fmt: skip
        assert job["state"] == "finished", job["message"]
        assert said(client, job).startswith(f"{text}#!/bin/sh")


def test_file_that_could_not_be_fetched_is_named(client: Client, web: Web) -> None:
    job = run(client, "true", [f"{web.url}/model.tgz", f"{web.url}/nothing"])
    assert (job["state"], job["attempts"], job["started_at"]) == ("failed", 1, None)
    assert str(job["message"]).startswith(f"could not fetch {web.url}/nothing: ")
    assert "404" in str(job["message"])


@pytest.mark.skipif(os.geteuid() != 0, reason="without root every file is of one user")
def test_a_file_that_the_jobs_user_may_not_read_is_not_fetched(client: Client, web: Web) -> None:
    """The executor is root, and may."""
    jobs = {uri: submit(client, "true", [uri]) for uri in (f"file://{web.directory}/secret", "/etc/shadow")}
    for uri, job in jobs.items():
        end = [job, *client.follow(job)][-1]
        assert end["state"] == "failed"
        assert str(end["message"]).startswith(f"could not fetch {uri}: ")
        assert "denied" in str(end["message"])


def test_a_job_is_killed_while_it_fetches(client: Client, web: Web) -> None:
    job = submit(client, "true", [f"{web.url}/slow/file"])
    wait_until("it is being fetched", lambda: "/slow/file" in web.asked)
    client.kill(job["id"])
    wait_until("it is killed", lambda: client.job(job["id"])["state"] == "killed")


def test_mesos_has_disk_labels_and_named_ports_of_an_app(stack: Stack, client: Client, web: Web) -> None:
    """For Mesos' own pages, Mesos-DNS and the like: disk, labels, ports with names; and its files were fetched."""
    definition = {
        "id": "/shop/web",
        "cmd": "cat script && exec sleep 600",
        "cpus": 0.1,
        "mem": 32,
        "disk": 50,
        "uris": [f"file://{web.directory}/script"],
        "labels": {"tier": "front"},
        "portDefinitions": [
            {"port": 0, "name": "http", "protocol": "udp,tcp", "labels": {"VIP_0": "/web:80"}}
        ],
    }
    made = requests.post(f"{stack.url}/v2/apps", json=definition, timeout=60)
    assert made.status_code == 201, made.text
    try:
        job = wait_until(
            "it runs",
            lambda: [j for j in client.jobs() if j["app"] == "/shop/web" and j["state"] == "running"],
        )[0]
        (port,) = next(task for task in client.tasks(job["id"]) if task["id"] == job["task_id"])["ports"]
        state = get_json("127.0.0.1", stack.cluster.master.port, "/master/state")
        (told,) = [task for f in state["frameworks"] for task in f["tasks"] if task["id"] == job["task_id"]]
    finally:
        requests.delete(f"{stack.url}/v2/apps/shop/web", timeout=60).raise_for_status()
    labels = {"labels": [{"key": "VIP_0", "value": "/web:80"}]}
    named = [{"number": port, "name": "http", "protocol": p, "labels": labels} for p in ("udp", "tcp")]
    assert told["discovery"] == {"visibility": "FRAMEWORK", "name": "web.shop", "ports": {"ports": named}}
    assert {"key": "tier", "value": "front"} in told["labels"]
    assert told["resources"]["disk"] == 50
