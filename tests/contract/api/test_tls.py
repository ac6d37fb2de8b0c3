"""The interface under TLS: a real server, real certificates, and clients of each kind."""

import contextlib
import logging
import os
import select
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from starlette.types import Receive, Scope, Send

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.peer import Peer, peer_in
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http import bounds, tls_listener
from mesos_gpu.api.http import server as served
from mesos_gpu.api.http.bounds import ConnectionLimits
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.settings import ApiSettings
from tests.certificates import DAY, Authority, Made
from tests.conftest import wait_until
from tests.contract.rig import Rig, skip

PATIENCE_S = 30.0
REFUSED = (ssl.SSLError, ConnectionError)  # what a client sees whose certificate is not taken


class TlsRig(Rig):
    """`Rig` under TLS. The files are looked at every 50 ms."""

    def __init__(
        self, files: TlsFiles, crowd: ConnectionLimits | None = None, *, open_to_all: bool = False
    ) -> None:
        super().__init__()
        self.server.stop()
        self.peers: list[Peer | None] = []
        self.tls = ReloadedTls(files, look_s=0.05)
        settings = ApiSettings("https://w", "0.1.0", open_to_all=open_to_all, tls=self.tls)
        self.app = create_app(self.daemon, settings)
        self.app.add_middleware(_Seen, peers=self.peers)
        self.server = Server(self.app, listen("127.0.0.1", 0), tls=self.tls, crowd=crowd)
        self.url = self.server.url


class _Seen:
    """Notes who is said to send each request."""

    def __init__(self, app: Callable[..., object], peers: list[Peer | None]) -> None:
        self._app, self._peers = app, peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._peers.append(peer_in(scope))
        await self._app(scope, receive, send)  # type: ignore[misc]


@pytest.fixture
def start() -> Iterator[Callable[..., TlsRig]]:
    rigs: list[TlsRig] = []

    def begin(files: TlsFiles, **more: Any) -> TlsRig:
        rigs.append(TlsRig(files, **more))
        return rigs[-1]

    yield begin
    for each in rigs:
        each.close()


@pytest.fixture
def rig(ca: Authority, start: Callable[..., TlsRig]) -> TlsRig:
    own = ca.server()
    return start(TlsFiles(own.cert, own.key))


class Caller:
    """A connection of a client; it is kept between requests."""

    def __init__(self, rig: TlsRig, ca: Authority, who: Made | None = None) -> None:
        trust = Trust(ca.cert, who.cert, who.key) if who else Trust(ca.cert)
        self.connection = HTTPSConnection(
            "127.0.0.1", rig.server.port, timeout=PATIENCE_S, context=client_context(trust)
        )

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def get(self, path: str = "/v1/health") -> HTTPResponse:
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        answer.read()
        return answer

    @property
    def serial(self) -> str:
        """What the server's certificate has, as this connection saw it."""
        told = self.connection.sock.getpeercert()
        assert told
        return str(told["serialNumber"])


def asked(rig: TlsRig, ca: Authority, who: Made | None = None) -> int:
    with Caller(rig, ca, who) as caller:
        return caller.get().status


def refused(rig: TlsRig, ca: Authority, who: Made | None = None) -> bool:
    try:
        asked(rig, ca, who)
    except REFUSED:
        return True
    return False


# --- who may speak


def test_tls_server_answers_and_sets_strict_transport_security(rig: TlsRig, ca: Authority) -> None:
    with Caller(rig, ca) as caller:
        answer = caller.get()
    assert (answer.status, answer.headers["strict-transport-security"]) == (200, "max-age=31536000")
    assert rig.url == f"https://127.0.0.1:{rig.server.port}"
    assert rig.peers == [None]


def test_curl_takes_it_and_doubts_it(rig: TlsRig, ca: Authority) -> None:
    command = ["curl", "-sS", "--cacert", str(ca.cert), "-w", " %{ssl_verify_result} %{http_version}"]
    done = subprocess.run([*command, f"{rig.url}/v1/health"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" 0 1.1")
    doubting = subprocess.run(["curl", "-sS", rig.url], capture_output=True, text=True, timeout=60)
    assert doubting.returncode == 60  # CURLE_PEER_FAILED_VERIFICATION


def test_files_that_openssl_wrote(tmp_path: Path, start: Callable[..., TlsRig]) -> None:
    """A self-signed RSA certificate, as operators make one by hand."""
    cert, key = tmp_path / "own.pem", tmp_path / "own.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7", "-subj", "/CN=gpu"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *more], check=True, capture_output=True, timeout=60)
    rig = start(TlsFiles(cert, key))
    command = ["curl", "-sS", "--cacert", str(cert), "-o", "/dev/null", "-w", "%{http_code}"]
    done = subprocess.run([*command, f"{rig.url}/v1/health"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("200", "")


@pytest.mark.parametrize(
    ("version", "ciphers", "why"),
    [
        (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", "UNSUPPORTED_PROTOCOL"),
        (ssl.TLSVersion.TLSv1_2, "DEFAULT", ""),
        (
            ssl.TLSVersion.TLSv1_2,
            "AES128-SHA256:AES256-SHA256:@SECLEVEL=0",
            "NO_SHARED_CIPHER",
        ),  # no forward secrecy
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256", "NO_SHARED_CIPHER"),  # no AEAD
        (ssl.TLSVersion.TLSv1_3, "DEFAULT", ""),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_tls_and_weak_ciphers_are_refused(
    rig: TlsRig,
    ca: Authority,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    version: ssl.TLSVersion,
    ciphers: str,
    why: str,
) -> None:
    monkeypatch.setattr(bounds, "_said", {})  # it says the same not twice in 10 s
    context = ssl.create_default_context(cafile=str(ca.cert))
    context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    with socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) as plain:
        if not why:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as talk:
                assert talk.version() == version.name.replace("_", ".")
            return
        with pytest.raises(REFUSED):
            context.wrap_socket(plain, server_hostname="127.0.0.1")
    wait_until("it is said why", lambda: f"a TLS handshake from 127.0.0.1 failed: {why}" in caplog.text)


def test_plain_http_is_told_so(rig: TlsRig, ca: Authority, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) as plain:
        plain.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000
        )
        answer = b""
        while more := plain.recv(65536):
            answer += more
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"use https:// instead of http://" in answer
    assert asked(rig, ca) == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"\x16" + b"\x00" * 40])
def test_a_broken_handshake_is_no_traceback(
    rig: TlsRig, ca: Authority, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) as odd:
        odd.sendall(said)
    assert asked(rig, ca) == 200
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


# --- slow handshakes


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_handshake_that_does_not_come_is_not_waited_for(rig: TlsRig, said: bytes) -> None:
    def has_ended() -> bool:
        skip(rig.server, tls_listener.HANDSHAKE_S)  # which begins when the connection is accepted
        return bool(select.select([slow], [], [], 0)[0])

    with socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) as slow:
        slow.sendall(said)
        wait_until("the connection is closed", has_ended)
        with contextlib.suppress(ConnectionResetError):  # closed before its bytes were read
            assert slow.recv(100) == b""


def test_slow_handshakes_do_not_keep_other_clients_out(
    ca: Authority,
    start: Callable[..., TlsRig],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More than there are places for, and more than may shake hands at once: others are served."""
    monkeypatch.setattr(tls_listener, "MAX_HANDSHAKES", 20)
    own = ca.server()
    rig = start(TlsFiles(own.cert, own.key), crowd=ConnectionLimits(5))
    held = [socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) for _ in range(30)]
    try:
        for _ in range(5):
            assert asked(rig, ca) == 200
        wait_until("the oldest is ended", lambda: "more than 20 TLS handshakes" in caplog.text)
        assert held[0].recv(1) == b""
    finally:
        for each in held:
            each.close()


def test_slow_handshakes_of_one_address_end_none_of_another(
    ca: Authority, start: Callable[..., TlsRig]
) -> None:
    own = ca.server()
    rig = start(TlsFiles(own.cert, own.key), crowd=ConnectionLimits(most_of_address=5))
    place = ("127.0.0.1", rig.server.port)
    other = socket.create_connection(place, PATIENCE_S, source_address=("127.0.0.3", 0))
    held = [socket.create_connection(place, PATIENCE_S, source_address=("127.0.0.2", 0)) for _ in range(8)]
    try:
        assert [each.recv(1) for each in held[:3]] == [b""] * 3
        for each in (other, *held[3:]):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
        assert asked(rig, ca) == 200
    finally:
        for each in (other, *held):
            each.close()


# --- who is at the other end


def mutual(ca: Authority, clients: Clients, crl: Path | None = None, server: Made | None = None) -> TlsFiles:
    own = server or ca.server()
    return TlsFiles(own.cert, own.key, ca.cert, clients, crl)


def test_a_client_s_certificate_reaches_the_application(ca: Authority, start: Callable[..., TlsRig]) -> None:
    rig = start(mutual(ca, Clients.OPTIONAL))
    alice = ca.client(
        "alice",
        x509.DNSName("alice.example.com"),
        x509.UniformResourceIdentifier("spiffe://example.com/alice"),
        x509.RFC822Name("alice@example.com"),
        subject="Alice, of x=y",
    )
    with Caller(rig, ca, alice) as caller:
        assert [caller.get().status, caller.get().status] == [200, 200]
    assert asked(rig, ca) == 200  # without one
    first, second, nobody = rig.peers
    assert first is not None
    assert first == second
    assert nobody is None
    assert first.subject == r"CN=Alice\, of x\=y,O=Example"
    assert first.common_names == ("Alice, of x=y",)
    assert (first.dns, first.uris) == (("alice.example.com",), ("spiffe://example.com/alice",))
    assert (first.emails, first.issuer) == (("alice@example.com",), "CN=Test CA")
    assert int(first.serial, 16) == alice.serial
    assert 80 * 86400 < first.not_after - time.time() < 91 * 86400


def test_a_certificate_that_nobody_asks_for_says_nothing(rig: TlsRig, ca: Authority) -> None:
    assert asked(rig, ca, ca.client("alice")) == 200
    assert rig.peers == [None]


@pytest.mark.parametrize("clients", [Clients.OPTIONAL, Clients.REQUIRED])
def test_client_certificate_of_an_unknown_authority_is_refused(
    ca: Authority, tmp_path: Path, start: Callable[..., TlsRig], clients: Clients
) -> None:
    rig = start(mutual(ca, clients))
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "Other CA").client("alice")
    impostor = Authority(tmp_path / "other").client("mallory")  # of the same name, another key
    wrong_use = ca.server("web")
    expired = ca.client("late", life=-DAY)
    for who in (stranger, impostor, wrong_use, expired):
        assert refused(rig, ca, who), who
    assert refused(rig, ca) is (clients is Clients.REQUIRED)
    assert asked(rig, ca, ca.client("alice")) == 200
    assert [peer.common_names for peer in rig.peers if peer] == [("alice",)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificate_refusal_tells_why(
    ca: Authority, tmp_path: Path, start: Callable[..., TlsRig], version: ssl.TLSVersion
) -> None:
    """By the alert, which OpenSSL's clients and curl show."""
    bob = ca.client("bob")
    rig = start(mutual(ca, Clients.REQUIRED, ca.crl(bob)))
    (tmp_path / "other").mkdir()
    none = "CERTIFICATE_REQUIRED" if version is ssl.TLSVersion.TLSv1_3 else "HANDSHAKE_FAILURE"
    whom = {
        "CERTIFICATE_REVOKED": bob,
        "CERTIFICATE_EXPIRED": ca.client("late", life=-DAY),
        "UNKNOWN_CA": Authority(tmp_path / "other", "Other CA").client("alice"),
        none: None,
    }
    for alert, who in whom.items():
        context = client_context(Trust(ca.cert, who.cert, who.key) if who else Trust(ca.cert))
        context.minimum_version = context.maximum_version = version
        with pytest.raises(ssl.SSLError, match=f"_ALERT_{alert}"):
            greet(rig, context)
    assert asked(rig, ca, ca.client("alice")) == 200


def greet(rig: TlsRig, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client has begun to send when it is refused."""
    with (
        socket.create_connection(("127.0.0.1", rig.server.port), timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wrapped.recv(1)


def test_client_certificate_is_refused_when_revoked_or_the_list_is_old(
    ca: Authority,
    start: Callable[..., TlsRig],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(bounds, "_said", {})
    alice, bob = ca.client("alice"), ca.client("bob")
    rig = start(mutual(ca, Clients.OPTIONAL, ca.crl(bob)))
    assert asked(rig, ca, alice) == 200
    assert refused(rig, ca, bob)
    wait_until("it is said why", lambda: "certificate revoked" in caplog.text)
    ca.crl(life=-DAY)
    wait_until("the old list is taken", lambda: "has expired" in rig.tls.state.problem)
    assert refused(rig, ca, alice)
    assert asked(rig, ca) == 200


def test_client_certificate_revoked_meanwhile_is_cut_off(
    ca: Authority, start: Callable[..., TlsRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """His open connection, an answer that does not end, and a session that he would resume."""
    monkeypatch.setattr(served, "RETIRE_S", 0.2)
    alice, bob = ca.client("alice"), ca.client("bob")
    rig = start(mutual(ca, Clients.OPTIONAL, ca.crl()))
    with Caller(rig, ca, bob) as kept, Caller(rig, ca, bob) as streaming, Caller(rig, ca) as nobody:
        assert [kept.get().status, nobody.get().status] == [200, 200]
        streaming.connection.request("GET", "/v2/events", headers={"Accept": "text/event-stream"})
        stream = streaming.connection.getresponse()
        assert stream.status == 200
        ca.crl(bob)
        wait_until("the list is taken", lambda: refused(rig, ca, bob))
        with pytest.raises((*REFUSED, OSError)):
            kept.get()
        while stream.readline():
            pass  # it ends
        assert nobody.get().status == 200  # on the connection that it had
        assert asked(rig, ca, alice) == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_who_was_revoked_meanwhile_is_not_resumed(
    ca: Authority, start: Callable[..., TlsRig], version: ssl.TLSVersion
) -> None:
    rig = start(mutual(ca, Clients.REQUIRED, ca.crl()))
    bob = ca.client("bob")
    context = client_context(Trust(ca.cert, bob.cert, bob.key))
    context.maximum_version = version

    def once(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("127.0.0.1", rig.server.port), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as talk,
        ):
            talk.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            heard = b""
            while more := talk.recv(65536):
                heard += more
            assert heard.startswith(b"HTTP/1.1 200"), heard
            return talk.session

    session = once(None)
    assert session is None or not session.has_ticket
    assert once(session) is not None or version is ssl.TLSVersion.TLSv1_3
    ca.crl(bob)
    wait_until("the list is taken", lambda: refused(rig, ca, bob))
    with pytest.raises((*REFUSED, AssertionError)):
        once(session)


# --- files that change


def test_a_new_certificate_is_taken_and_open_connections_go_on(rig: TlsRig, ca: Authority) -> None:
    with Caller(rig, ca) as before:
        assert before.get().status == 200
        old = before.serial
        new = ca.server()
        wait_until("the new one is taken", lambda: _serial(rig, ca) == new.serial)
        assert before.get().status == 200
        assert before.serial == old
    assert rig.tls.state.problem == ""


def _serial(rig: TlsRig, ca: Authority) -> int:
    with Caller(rig, ca) as caller:
        assert caller.get().status == 200
        return int(caller.serial, 16)


def test_an_invalid_certificate_file_changes_nothing_and_is_logged_once(
    rig: TlsRig, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    old = _serial(rig, ca)
    good = rig.tls.files.certificate.read_bytes()
    rig.tls.files.certificate.write_text("nonsense")
    wait_until("it is noticed", lambda: "new TLS files are not used" in rig.tls.state.problem)
    for _ in range(10):
        assert not rig.tls.look()
    assert _serial(rig, ca) == old
    assert caplog.text.count("new TLS files are not used") == 1
    rig.tls.files.certificate.write_bytes(good)
    wait_until("it is mended", lambda: rig.tls.state.problem == "")


def test_a_certificate_without_its_key_is_waited_for(
    rig: TlsRig, ca: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate comes first, its key much later: meanwhile the old pair serves."""
    (tmp_path / "new").mkdir()
    elsewhere = Authority(tmp_path / "new")
    old, made = _serial(rig, ca), elsewhere.server()
    made.cert.rename(rig.tls.files.certificate)
    wait_until("it is noticed", lambda: "certificate and key do not match" in rig.tls.state.problem)
    assert _serial(rig, ca) == old
    made.key.rename(rig.tls.files.key)
    wait_until("the key is taken", lambda: rig.tls.state.problem == "")
    assert _serial(rig, elsewhere) == made.serial


def test_an_expired_certificate_does_not_replace_a_good_one(rig: TlsRig, ca: Authority) -> None:
    old = _serial(rig, ca)
    ca.server(life=-DAY)
    wait_until("it is noticed", lambda: "has expired" in rig.tls.state.problem)
    assert _serial(rig, ca) == old


def test_files_behind_a_link_that_is_turned(
    ca: Authority, tmp_path: Path, start: Callable[..., TlsRig]
) -> None:
    """Certbot and Kubernetes do so."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = ca.server()
        made.cert.rename(tmp_path / name / "cert.pem")
        made.key.rename(tmp_path / name / "key.pem")
    link = tmp_path / "now"
    link.symlink_to("one")
    rig = start(TlsFiles(link / "cert.pem", link / "key.pem"))
    old = _serial(rig, ca)
    (tmp_path / "next").symlink_to("two")
    os.replace(tmp_path / "next", link)
    wait_until("the other one is served", lambda: _serial(rig, ca) != old)


def test_reload_costs_no_request(rig: TlsRig, ca: Authority) -> None:
    """Each request of `_serial` must be answered, whichever certificate it finds."""
    for _ in range(4):
        new = ca.server()
        rig.tls.wake()
        wait_until("the new one is taken", lambda: _serial(rig, ca) == new.serial)  # noqa: B023 # awaited here
