"""Two schedulers, each with a certificate of its own: what one sends on goes by TLS, to whom it verifies."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.tls.here import TlsHere
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.certificates import Authority, Made
from tests.conftest import wait_until
from tests.e2e.ha.pairs import await_schedulers
from tests.e2e.ha.test_switch import other_than
from tests.e2e.ha.test_switch import pytestmark as pytestmark

NAME = "localhost"


@pytest.fixture(scope="module")
def running(open_directory: Path) -> Iterator[Stack]:
    for name in ("ca", "other"):
        (open_directory / name).mkdir()
    authority = Authority(open_directory / "ca")
    Authority(open_directory / "other", "Other CA")
    one, two = (authority.server(name, NAME) for name in ("one", "two"))
    for path in (authority.directory, authority.cert):
        path.chmod(0o755 if path.is_dir() else 0o644)  # executors believe it, whoever they run as
    everybody = TlsHere(authority.cert, one.key, NAME)  # who believes the authority believes both
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchedulerProcess, "start", with_own({1: one, 2: two}, SchedulerProcess.start))
        with Stack(open_directory / "stack", [NodeSpec(2)], schedulers=2, tls=everybody) as stack:
            stack.await_leader()
            yield stack


def with_own(certificates: Mapping[int, Made], start: Any) -> Any:
    """`start`, of each scheduler with its own certificate."""

    def started(process: SchedulerProcess, *more: str) -> SchedulerProcess:
        made = certificates[2 if process.directory.name.endswith("-2") else 1]
        started: SchedulerProcess = start(
            process, "--tls-cert", str(made.cert), "--tls-key", str(made.key), *more
        )
        return started

    return started


@pytest.fixture
def stack(running: Stack) -> Stack:
    """Return the cluster with both schedulers up."""
    await_schedulers(running)
    return running


def authority_of(stack: Stack) -> Path:
    assert stack.tls is not None
    return stack.tls.certificate


def ask(
    stack: Stack, one: SchedulerProcess, verb: str, path: str, body: object = None
) -> tuple[int, Any, Any]:
    """Status, headers and document of an answer, from who is verified."""
    context = ssl.create_default_context(cafile=str(authority_of(stack)))
    with contextlib.closing(
        http.client.HTTPSConnection(NAME, one.port, timeout=30, context=context)
    ) as connection:
        data = None if body is None else json.dumps(body)
        connection.request(verb, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read() or b"null")


def serial_of(stack: Stack, one: SchedulerProcess) -> str:
    """The number of the certificate that it shows."""
    context = ssl.create_default_context(cafile=str(authority_of(stack)))
    plain = socket.create_connection((NAME, one.port), 30)
    with plain, context.wrap_socket(plain, server_hostname=NAME) as sock:
        shown = sock.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def test_standby_sends_changes_on_by_tls_with_a_certificate_of_its_own(stack: Stack) -> None:
    leader, [standby] = stack.await_leader(), stack.standbys()
    assert serial_of(stack, leader) != serial_of(stack, standby)
    status, _, job = ask(stack, standby, "POST", "/v1/jobs", {"command": "echo by TLS; sleep 60", "gpus": 1})
    assert status == 201, job
    where = f"/v1/jobs/{job['id']}"
    wait_until("it runs", lambda: ask(stack, standby, "GET", where)[2]["state"] == "running", 60)
    wait_until("it is read here", lambda: ask(stack, standby, "GET", where)[1]["Age"])
    status, headers, _ = ask(stack, standby, "GET", where)
    assert (status, headers["Mesos-Gpu-Standby"]) == (200, leader.url)
    status, headers, nodes = ask(stack, standby, "GET", "/v1/nodes")
    assert (status, headers["Age"], len(nodes["nodes"])) == (200, None, 1), "asked of the leader"
    words = [sys.executable, "-m", "mesos_gpu", "--url", standby.url, "--cacert", str(authority_of(stack))]
    done = subprocess.run(
        [*words, "exec", job["id"], "--", "echo", "in it"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "in it\n", "")
    assert ask(stack, standby, "DELETE", where)[0] == 202


def test_switch_is_followed_by_tls(stack: Stack) -> None:
    first = stack.await_leader()
    first.kill()
    second = other_than(stack, first)
    first.start().wait()
    status, _, job = ask(stack, first, "POST", "/v1/jobs", {"command": "true", "gpus": 1})
    assert status == 201, job
    where = f"/v1/jobs/{job['id']}"
    wait_until("it ended", lambda: ask(stack, second, "GET", where)[2]["state"] == "finished", 60)
    wait_until("it is known here", lambda: ask(stack, first, "GET", where)[2]["state"] == "finished", 60)


def test_standby_sends_nothing_to_a_leader_that_is_not_verified(stack: Stack) -> None:
    leader, [standby] = stack.await_leader(), stack.standbys()
    standby.kill()
    other = authority_of(stack).parents[1] / "other" / "Other-CA.pem"
    standby.start("--ha-cacert", str(other)).wait()
    try:
        wait_until("it knows who leads", lambda: ask(stack, standby, "GET", "/v1/leader")[2]["leader"], 30)
        jobs = len(ask(stack, leader, "GET", "/v1/jobs")[2]["jobs"])
        assert ask(stack, standby, "GET", "/v1/jobs")[0] == 200, "its own copy"
        status, _, body = ask(stack, standby, "POST", "/v1/jobs", {"command": "true"})
        assert status in (502, 503), body
        assert "certificate" in json.dumps(body), body
        assert len(ask(stack, leader, "GET", "/v1/jobs")[2]["jobs"]) == jobs
    finally:
        standby.kill()
