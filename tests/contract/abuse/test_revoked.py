"""What goes on, and what does not, when somebody's rights end while he uses them."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import requests
from starlette.types import Scope

from mesos_gpu.api.marathon import events
from mesos_gpu.engine import events as ev
from mesos_gpu.model.access.caller import Caller
from tests.conftest import wait_until
from tests.contract.access.rig import CALLER, AccessRig
from tests.doubles.builders import offer

BOSS = {"names": ["boss"], "roles": ["admin"]}
ANN = {"names": ["ann"], "roles": ["user"], "queues": ["research"], "apps": ["/research/*"]}
JOB = {"command": "true", "queue": "research", "user": "ann", "cpus": 0.1, "mem_mib": 32}
APP = {"id": "/research/web", "cmd": "sleep 9", "cpus": 0.1, "mem": 32, "instances": 1, "portDefinitions": []}


class Rig(AccessRig):
    """Counts ann's requests."""

    begun = 0

    async def identify(self, scope: Scope) -> Caller:
        caller = await super().identify(scope)
        self.begun += caller.name == "ann"
        return caller


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.bind(BOSS, ANN)
    yield rig
    rig.close()


def launched(rig: AccessRig, path: str) -> None:
    """Wait until there is a task at a path, as the admin sees it, with offers meanwhile."""

    def look() -> bool:
        rig.clock.time += 1.0
        rig.daemon.put(ev.OffersArrived((offer(f"o{rig.clock.time}", "a1"),)))
        return bool(rig.call("boss", "GET", path).json()["tasks"])

    wait_until(f"a task at {path}", look)


def test_admitted_job_starts_after_its_owner_lost_all_rights(rig: AccessRig) -> None:
    job = rig.call("ann", "POST", "/v1/jobs", json=JOB).json()["id"]
    assert rig.call("ann", "POST", "/v2/apps", json=APP).status_code == 201
    rig.bind(BOSS)
    launched(rig, f"/v1/jobs/{job}/tasks")
    launched(rig, "/v2/apps/research/web/tasks")
    for verb, path in (
        ("GET", f"/v1/jobs/{job}"),
        ("DELETE", f"/v1/jobs/{job}"),
        ("GET", f"/v1/jobs/{job}/logs"),
        ("POST", "/v1/jobs"),
        ("GET", "/v2/apps/research/web"),
        ("PUT", "/v2/apps/research/web"),
        ("DELETE", "/v2/apps/research/web"),
    ):
        body = JOB if verb == "POST" else {"instances": 9} if verb == "PUT" else None
        assert rig.call("ann", verb, path, json=body).status_code == 403, path
    owners = [each["owner"] for each in rig.call("boss", "GET", "/v1/jobs").json()["jobs"]]
    assert owners == ["ann", "ann"]
    assert rig.call("boss", "DELETE", f"/v1/jobs/{job}").status_code == 202


def test_a_stream_that_goes_on_tells_nothing_more(rig: AccessRig) -> None:
    with listening(rig, "ann") as of_ann, listening(rig, "boss") as of_boss:
        rig.bind(BOSS)
        rig.call("boss", "POST", "/v2/apps", json={**APP, "id": "/research/hidden", "instances": 0})
        assert posted(of_boss) == "/research/hidden"  # what goes to all is worked out at once
        rig.bind(BOSS, ANN)
        rig.call("boss", "POST", "/v2/apps", json={**APP, "id": "/research/seen", "instances": 0})
        assert posted(of_ann) == "/research/seen"


@contextmanager
def listening(rig: AccessRig, name: str) -> Iterator[Iterator[bytes]]:
    """Lines of events, as somebody hears them."""
    headers = {CALLER: json.dumps({"name": name}), "Accept": "text/event-stream"}
    with requests.get(rig.server.url + "/v2/events", headers=headers, stream=True, timeout=60) as heard:
        assert heard.status_code == 200, heard.status_code
        lines = heard.iter_lines()
        next(lines)
        yield lines


def posted(lines: Iterator[bytes]) -> str:
    """The next app of which somebody hears that it was asked for."""
    events = (json.loads(line[5:]) for line in lines if line.startswith(b"data:"))
    return str(next(each["appDefinition"]["id"] for each in events if each["eventType"] == "api_post_event"))


def test_listeners_of_a_name_do_not_shut_out_others(rig: AccessRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_OF_NAME", 3)
    with ExitStack() as many:
        for _ in range(3):
            many.enter_context(listening(rig, "ann"))
        with pytest.raises(AssertionError, match="429"):
            many.enter_context(listening(rig, "ann"))
        many.enter_context(listening(rig, "boss"))


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("POST", "/v1/nodes/a1.example/drain", {"reason": "x"}),
        ("POST", "/v1/gpus/g0/reset", {"reason": "x"}),
        ("POST", "/v1/tokens", {"comment": "x"}),
        ("POST", "/v1/jobs", JOB),
        ("PUT", "/v1/access", {"version": 2, "bindings": [BOSS, {"names": ["ann"], "roles": ["admin"]}]}),
        ("PUT", "/v2/apps/research/web", {"instances": 2}),
    ],
)
def test_a_body_that_comes_when_the_right_has_gone_does_nothing(
    rig: Rig, verb: str, path: str, body: dict[str, Any]
) -> None:
    rig.bind(BOSS, {"names": ["ann"], "roles": ["admin"]})
    text = b" " * (1 << 17) + json.dumps(body).encode()  # more than is kept before it is begun
    head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{CALLER}: {json.dumps({'name': 'ann'})}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", rig.server.port), timeout=60) as connection:
        connection.sendall(head.encode() + text[:-1])
        wait_until("its head was read", lambda: rig.begun == 1)
        rig.bind(BOSS)
        connection.sendall(text[-1:])
        assert connection.recv(1 << 16).split()[1] in (b"403", b"409")
