"""Channels over the interface: the executor's own WebSocket and the client's library meet at a real server."""

import contextlib
import hashlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from isolator.session.websocket import CACERT, Lost, WebSocket, dial
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.api.app import create_app
from mesos_gpu.api.channel import channels, opening, relay
from mesos_gpu.api.channel.opening import pin_of
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.cli.channel.line import open_line
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.wire.channel.call import Call, answer_to, decode_call
from mesos_gpu.wire.channel.frames import MAX_DATA, MAX_FRAME, Frame, Kind, decode, encode
from mesos_gpu.wire.channel.order import Order
from mesos_gpu.wire.channel.orders import decode_order
from mesos_gpu.wire.mesos.seal import secret_for
from tests.certificates import Authority
from tests.conftest import wait_until
from tests.contract.rig import Rig, code_of, skip

EVERY_BYTE = bytes(range(256))


KEY = b"k" * 32


class Sealing(Daemon):
    """A scheduler whose launches have secrets."""

    def __init__(self, store: Any, saved: Any, driver: Any, clock: Any, settings: Settings) -> None:
        super().__init__(store, saved, driver, clock, settings.changed(sealed=True), key=KEY)


class Opened(NamedTuple):
    """A channel that waits for both."""

    path: str
    proof: str
    call: Call
    answer: str


class Sealed(Rig):
    """A scheduler whose executors are played here. `task`: the one whose executor it is now."""

    task = ""

    def __init__(self, **settings: Any) -> None:
        self._numbers = count(1)
        self._hosts: list[WebSocket] = []
        super().__init__(Sealing, **settings)

    def status(self, task: str, state: str, agent: str = "a1", data: bytes = b"") -> None:
        """Tell an update as the executor seals it."""
        status = Status(TaskId(task), state, AgentId(agent), data=data, uuid="u", proof=next(self._numbers))
        self.daemon.put(ev.StatusArrived(status))

    @property
    def secret(self) -> str:
        """The secret of its launch."""
        return secret_for(KEY, self.task)

    def called(self) -> Call:
        """The latest call that its executor got."""
        data = next(what[2] for name, what in reversed(self.driver.calls) if name == "message")
        return decode_call(data, self.task, self.secret)

    def host(self, opened: Opened) -> WebSocket:
        """The executor's end of a channel; one that a test which failed has left open is closed with the scheduler."""
        self._hosts.append(dial(self.url, opened.path, opened.answer, "", MAX_FRAME))
        return self._hosts[-1]

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        super().close()


class Launched(Sealed):
    """A `Sealed` scheduler whose only job is launched on a GPU of its only node."""

    def __init__(self) -> None:
        super().__init__()
        self.node()
        self.job = self.submit(gpus=1)["id"]
        wait_until("it is launched", lambda: self.call("GET", f"/v1/jobs/{self.job}").json()["launches"])
        self.task = self.call("GET", f"/v1/jobs/{self.job}/tasks").json()["tasks"][0]["id"]


class Playing(Launched):
    """A `Launched` scheduler whose job runs."""

    def __init__(self) -> None:
        super().__init__()
        self.status(self.task, "TASK_RUNNING")
        wait_until("it runs", lambda: self.call("GET", f"/v1/jobs/{self.job}").json()["state"] == "running")

    def open(self, *argv: str, **more: Any) -> Opened:
        response = self.call("POST", f"/v1/jobs/{self.job}/exec", json={"argv": argv or ("true",), **more})
        assert response.status_code == 201, response.text
        said = response.json()
        call = self.called()
        assert said["path"] == f"/v1/channels/{call.id}"
        return Opened(said["path"], said["proof"], call, answer_to(call, self.secret))

    def client(self, path: str, proof: str, **headers: str) -> ClientConnection:
        given = {"Authorization": f"Bearer {proof}", **headers}
        url = f"ws://127.0.0.1:{self.server.port}{path}"
        return connect(url, additional_headers=given, compression=None, proxy=None, max_size=MAX_FRAME)

    @contextlib.contextmanager
    def both(self, *argv: str, **more: Any) -> "Iterator[tuple[ClientConnection, WebSocket]]":
        opened = self.open(*argv, **more)
        with self.client(opened.path, opened.proof) as client:
            host = self.host(opened)
            try:
                assert decode(host.receive()).kind is Kind.ORDER
                yield client, host
            finally:
                host.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Playing]:
    rig = Playing()
    yield rig
    rig.close()


def heard(client: ClientConnection) -> Frame:
    message = client.recv(timeout=60)
    assert isinstance(message, bytes)
    return decode(message)


def is_refused(rig: Playing, path: str, proof: str, **headers: str) -> bool:
    try:
        with rig.client(path, proof, **headers):
            return False
    except InvalidStatus as error:
        return error.response.status_code == 403


def ends(client: ClientConnection) -> bool:
    try:
        client.recv(timeout=60)
    except ConnectionClosed:
        return True
    return False


def test_the_host_is_told_what_to_run_and_bytes_go_both_ways(rig: Playing) -> None:
    opened = rig.open("cat", "-n", stdin=True, tty=True, rows=50, columns=132, term="vt100")
    with rig.client(opened.path, opened.proof) as client:
        host = rig.host(opened)
        order = decode_order(decode(host.receive()).data)
        assert order == Order(("cat", "-n"), stdin=True, tty=True, rows=50, columns=132, term="vt100")
        data = EVERY_BYTE * (MAX_DATA // 256)
        client.send(encode(Frame(Kind.STDIN, data)))
        assert decode(host.receive()) == Frame(Kind.STDIN, data)
        for kind in (Kind.STDOUT, Kind.STDERR):
            host.send(encode(Frame(kind, data)))
            assert heard(client) == Frame(kind, data)
        host.send(encode(Frame(Kind.EXIT, numbers=(7,))))
        assert heard(client) == Frame(Kind.EXIT, numbers=(7,))
        assert ends(client)
        with pytest.raises(Lost):
            host.receive()
        host.close()


def test_channel_side_that_comes_first_waits(rig: Playing) -> None:
    opened = rig.open()
    host = rig.host(opened)
    with rig.client(opened.path, opened.proof):
        assert decode(host.receive()).kind is Kind.ORDER
        host.close()


def test_a_proof_is_good_once(rig: Playing) -> None:
    opened = rig.open()
    with rig.client(opened.path, opened.proof):
        assert is_refused(rig, opened.path, opened.proof)
        rig.host(opened).close()
    assert is_refused(rig, opened.path, opened.answer)
    assert is_refused(rig, opened.path, opened.proof)


def test_channel_is_opened_by_no_other_proof(rig: Playing) -> None:
    opened = rig.open()
    for path, proof in ((opened.path, "x"), (opened.path, ""), ("/v1/channels/none", opened.proof)):
        assert is_refused(rig, path, proof)
    assert is_refused(rig, f"{opened.path}/", opened.proof)
    with rig.client(opened.path, opened.proof):
        pass


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_opens_none(rig: Playing, origin: str) -> None:
    opened = rig.open()
    assert is_refused(rig, opened.path, opened.proof, Origin=origin)
    with rig.client(opened.path, opened.proof, Origin=rig.url):  # the proof was not looked at
        pass


def test_a_request_that_does_not_switch_is_answered_as_any(rig: Playing) -> None:
    opened = rig.open()
    response = rig.call("GET", opened.path, headers={"Authorization": f"Bearer {opened.proof}"})
    assert response.status_code == 404
    with rig.client(opened.path, opened.proof):
        pass


@pytest.mark.parametrize(
    "frame", [Frame(Kind.STDOUT, b"x"), Frame(Kind.EXIT, numbers=(0,)), Frame(Kind.ORDER)]
)
def test_a_client_that_sends_what_is_the_hosts_is_ended(rig: Playing, frame: Frame) -> None:
    with rig.both() as (client, host):
        client.send(encode(frame))
        with pytest.raises(Lost):
            host.receive()
        assert ends(client)


@pytest.mark.parametrize("message", [b"", b"\xff", "text", bytes(MAX_FRAME + 1)])
def test_channel_ends_at_bytes_that_are_no_frame(rig: Playing, message: bytes | str) -> None:
    with rig.both() as (client, host):
        client.send(message)
        with pytest.raises(Lost):
            host.receive()


def test_channel_side_is_told_when_the_other_goes(rig: Playing) -> None:
    with rig.both() as (client, host):
        client.close()
        with pytest.raises(Lost):
            host.receive()
    with rig.both() as (client, host):
        host.close()
        assert ends(client)


def test_channel_whose_host_does_not_come_tells_the_client(rig: Playing) -> None:
    opened = rig.open()
    with rig.client(opened.path, opened.proof) as client:
        skip(rig.server, channels.MEET_S)
        said = heard(client)
    assert said.kind is Kind.FAILED
    assert f"did not connect within {channels.MEET_S:g} s".encode() in said.data
    assert is_refused(rig, opened.path, opened.answer)


def test_channel_that_is_not_joined_in_time_is_forgotten(rig: Playing) -> None:
    opened = rig.open()
    skip(rig.server, channels.MEET_S)
    assert is_refused(rig, opened.path, opened.proof)


def test_channels_of_a_caller_are_limited(rig: Playing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MAX_OF_ONE", 0)
    response = rig.call("POST", f"/v1/jobs/{rig.job}/exec", json={"argv": ["true"]})
    assert code_of(response) == (429, "channels")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "/argv"), ({"argv": []}, "/argv"), ({"argv": ["a\0"]}, "/argv"), ({"argv": ["a"], "x": 1}, "/x"),
        ({"argv": ["a"], "rank": -1}, "/rank"), ({"argv": ["a"], "rank": 1}, "/rank"),
        ({"argv": ["a"], "tty": 1}, "/tty"),
    ],
)  # fmt: skip
def test_channel_request_refusal_tells_what_is_wrong(
    rig: Playing, body: dict[str, object], path: str
) -> None:
    response = rig.call("POST", f"/v1/jobs/{rig.job}/exec", json=body)
    assert code_of(response) == (422, "invalid")
    assert [each["path"] for each in response.json()["error"]["problems"]] == [path]


@pytest.mark.parametrize(("state", "answer"), [("TASK_RUNNING", 201), ("TASK_FAILED", 409)])
def test_channel_of_a_job_that_starts_waits_for_its_task(state: str, answer: int) -> None:
    with contextlib.closing(Launched()) as rig, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(rig.call, "POST", f"/v1/jobs/{rig.job}/exec", json={"argv": ["true"]})
        waiting = rig.app.state.changes.waiting
        wait_until("the request waits", lambda: JobId(rig.job) in waiting or asked.done())
        assert not asked.done()
        rig.status(rig.task, "TASK_STARTING")
        rig.status(rig.task, state)
        assert asked.result(30).status_code == answer


def test_channel_of_a_job_that_starts_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_START_S", 0.1)
    with contextlib.closing(Launched()) as rig:
        response = rig.call("POST", f"/v1/jobs/{rig.job}/exec", json={"argv": ["true"]})
        assert code_of(response) == (409, "not-running")
        assert "is launched" in response.json()["error"]["message"]


def test_a_job_that_waits_has_no_channel(rig: Playing) -> None:
    waits = rig.submit(gpus=1)["id"]
    response = rig.call("POST", f"/v1/jobs/{waits}/exec", json={"argv": ["true"]})
    assert code_of(response) == (409, "not-running")


def test_channel_under_tls_needs_the_certificate_that_the_call_names(
    rig: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = (Authority(tmp_path, name).server(name + "-server") for name in ("one", "other"))
    tls = ReloadedTls(TlsFiles(made.cert, made.key))
    server = Server(
        create_app(rig.daemon, ApiSettings("https://w", "0.1.0", tls=tls)), listen("127.0.0.1", 0), tls=tls
    )
    try:
        url = f"{server.url}/v1/jobs/{rig.job}/exec"
        said = requests.post(
            url, json={"argv": ["true"]}, verify=str(tmp_path / "one.pem"), timeout=60
        ).json()
        call = rig.called()
        served = ssl.PEM_cert_to_DER_cert(made.cert.read_text())
        assert call.pin == hashlib.sha256(served).hexdigest() == pin_of(ApiSettings("", "", tls=tls))
        answer = answer_to(call, rig.secret)
        wrong = hashlib.sha256(ssl.PEM_cert_to_DER_cert(other.cert.read_text())).hexdigest()
        for pin in (wrong, ""):  # of another, and of no authority of this host
            with pytest.raises(OSError, match="certificate"):
                dial(server.url, said["path"], answer, pin, MAX_FRAME)
        monkeypatch.setenv(CACERT, str(tmp_path / "other.pem"))  # a pin needs no authority
        host = dial(server.url, said["path"], answer, call.pin, MAX_FRAME)
        with open_line(Reach(server.url, cacert=tmp_path / "one.pem"), said) as client:
            assert decode(host.receive()).kind is Kind.ORDER
            host.send(encode(Frame(Kind.STDOUT, EVERY_BYTE * 256)))
            assert heard(client).data == EVERY_BYTE * 256
        host.close()
    finally:
        server.stop()


def test_channel_url_of_the_operator_is_verified_by_authorities(
    rig: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Authority(tmp_path, "one").server()
    Authority(tmp_path, "other")
    tls = ReloadedTls(TlsFiles(made.cert, made.key))
    settings = ApiSettings("https://w", "0.1.0", tls=tls, own_url="https://localhost:1", own_url_is_told=True)
    server = Server(create_app(rig.daemon, settings), listen("127.0.0.1", 0), tls=tls)
    try:
        url = f"{server.url}/v1/jobs/{rig.job}/exec"
        one = str(tmp_path / "one.pem")
        said = requests.post(url, json={"argv": ["true"]}, verify=one, timeout=60).json()
        call = rig.called()
        assert (call.url, call.pin) == ("https://localhost:1", "")
        answer, there = answer_to(call, rig.secret), f"https://localhost:{server.port}"
        monkeypatch.setenv(CACERT, str(tmp_path / "other.pem"))
        with pytest.raises(OSError, match="certificate"):
            dial(there, said["path"], answer, "", MAX_FRAME)
        monkeypatch.setenv(CACERT, one)
        dial(there, said["path"], answer, "", MAX_FRAME).close()
    finally:
        server.stop()


def page(rig: Playing, opened: Opened, *offered: str, **headers: str) -> ClientConnection:
    """A connection as a page of the server's own origin makes it."""
    return connect(
        f"ws://127.0.0.1:{rig.server.port}{opened.path}",
        subprotocols=[Subprotocol(each) for each in offered],
        additional_headers={"Origin": rig.url, **headers},
        compression=None,
        proxy=None,
    )


def test_a_page_shows_its_proof_as_a_subprotocol(rig: Playing) -> None:
    opened = rig.open("sh", stdin=True, tty=True)
    with page(rig, opened, relay.SUBPROTOCOL, f"proof.{opened.proof}") as client:
        assert client.subprotocol == relay.SUBPROTOCOL  # and not what it shows
        host = rig.host(opened)
        assert decode(host.receive()).kind is Kind.ORDER
        host.send(encode(Frame(Kind.STDOUT, EVERY_BYTE)))
        assert heard(client).data == EVERY_BYTE
        host.close()


def test_a_page_that_shows_no_proof_or_two_is_refused(rig: Playing) -> None:
    opened = rig.open()
    proof = f"proof.{opened.proof}"
    for offered in ((relay.SUBPROTOCOL,), (proof,), (relay.SUBPROTOCOL, proof, "proof.x"), ("proof.",)):
        with pytest.raises(InvalidStatus, match="403"):
            page(rig, opened, *offered)
    with pytest.raises(InvalidStatus, match="403"):
        page(rig, opened, relay.SUBPROTOCOL, proof, Authorization=f"Bearer {opened.proof}")
    with page(rig, opened, relay.SUBPROTOCOL, proof):  # none of these has used it up
        pass


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1@evil.example", ""])
def test_a_name_that_is_made_to_lead_here_opens_none(rig: Playing, host: str) -> None:
    # A page under such a name has an origin of that name: origin and Host are the same.
    opened = rig.open()
    head = (
        f"GET {opened.path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Authorization: Bearer {opened.proof}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", rig.server.port), 60) as line:
        line.sendall(head.encode())
        assert b" 403 " in line.recv(4096).split(b"\r\n")[0]
    with rig.client(opened.path, opened.proof):  # the proof was not looked at
        pass
