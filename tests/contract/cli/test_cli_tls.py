"""The command line over TLS, against a real server: what is believed, and what is said of what is not."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.cli.client import Client, Unreachable
from mesos_gpu.cli.reach.reach import Files, Reach, find_reach
from tests.certificates import DAY, Authority
from tests.contract.api.test_tls import TlsRig
from tests.contract.cli.cli_rig import call
from tests.contract.rig import Rig
from tests.doubles.fake_rest import FakeRest


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("URL", "CACERT", "CERT", "KEY"):
        monkeypatch.delenv(f"MESOS_GPU_{name}", raising=False)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def start() -> Iterator[Callable[[TlsFiles], TlsRig]]:
    rigs: list[TlsRig] = []

    def begin(files: TlsFiles) -> TlsRig:
        rigs.append(TlsRig(files))
        return rigs[-1]

    yield begin
    for each in rigs:
        each.close()


Start = Callable[[TlsFiles], TlsRig]


def test_client_tls_trusts_only_the_named_authority(
    ca: Authority, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = ca.server()
    rig = start(TlsFiles(own.cert, own.key))
    got = call("--url", rig.url, "--cacert", str(ca.cert), "status", "--json")
    assert (got.exit_code, json.loads(got.stdout)["url"]) == (0, rig.url)
    got = call("--url", rig.url, "status")
    assert got.exit_code == 76
    assert "does not come from the authorities that this host trusts" in got.stderr
    assert "--cacert or MESOS_GPU_CACERT" in got.stderr
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    got = call("--url", rig.url, "--cacert", str(other.cert), "status")
    assert (got.exit_code, f"does not come from the authorities in {other.cert}" in got.stderr) == (76, True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca.cert))  # of requests, not of ours
    assert call("--url", rig.url, "status").exit_code == 76
    monkeypatch.setenv("MESOS_GPU_CACERT", str(ca.cert))
    assert call("--url", rig.url, "ps").exit_code == 0
    assert call("ps", "--url", rig.url).exit_code == 0


def test_the_server_s_own_certificate_may_be_named(ca: Authority, start: Start) -> None:
    """No authority is to be had, as of a certificate that another tool made."""
    own = ca.server()
    rig = start(TlsFiles(own.cert, own.key))
    assert call("--url", rig.url, "--cacert", str(own.cert), "ps").exit_code == 0


def test_client_tls_says_what_is_wrong_with_a_certificate(ca: Authority, start: Start) -> None:
    for made, said in (
        (ca.server("late", life=-DAY), "has expired"),
        (ca.server("other", "gpu.example.com"), "is for another name"),
    ):
        rig = start(TlsFiles(made.cert, made.key))
        got = call("--url", rig.url, "--cacert", str(ca.cert), "ps")
        assert (got.exit_code, said in got.stderr, "To fix: " in got.stderr) == (76, True, True), got.stderr


def test_https_and_http_are_told_apart(ca: Authority, start: Start) -> None:
    own = ca.server()
    rig, plain = start(TlsFiles(own.cert, own.key)), Rig()
    try:
        got = call("--url", rig.url.replace("https", "http"), "ps")
        assert (got.exit_code, f"it uses https; use the address {rig.url}" in got.stderr) == (76, True)
        got = call("--url", plain.url.replace("http", "https"), "ps")
        assert (got.exit_code, f"does not use TLS\nTo fix: use {plain.url}" in got.stderr) == (76, True)
    finally:
        plain.close()


def test_a_certificate_is_shown_where_one_is_asked_for(
    ca: Authority, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, alice, bob = ca.server(), ca.client("alice"), ca.client("bob")
    rig = start(TlsFiles(own.cert, own.key, ca.cert, Clients.REQUIRED, ca.crl(bob)))
    monkeypatch.setenv("MESOS_GPU_CACERT", str(ca.cert))
    got = call("--url", rig.url, "ps")
    assert got.exit_code == 76
    assert "requires a client certificate, and none was sent" in got.stderr
    assert "--cert and --key" in got.stderr
    assert call("--url", rig.url, "--cert", str(alice.cert), "--key", str(alice.key), "ps").exit_code == 0
    got = call("--url", rig.url, "--cert", str(bob.cert), "--key", str(bob.key), "ps")
    assert (got.exit_code, "refused the client certificate: it is revoked" in got.stderr) == (76, True)
    monkeypatch.setenv("MESOS_GPU_CERT", str(alice.cert))
    monkeypatch.setenv("MESOS_GPU_KEY", str(alice.key))
    got = call("--url", rig.url, "run", "--detach", "true")
    assert got.exit_code == 0, got.stderr
    assert {peer.common_names for peer in rig.peers if peer} == {("alice",)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cacert", "/none"], "/none: authorities: No such file"),
        (["--cacert", "/dev/null"], "/dev/null"),
        (["--key", "/none"], "a key without a certificate"),
        (["--cert", "/none"], "/none: certificate with the key"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(words: list[str], said: str) -> None:
    got = call("--url", "https://127.0.0.1:1", *words, "ps")
    assert (got.exit_code, said in got.stderr) == (78, True), got.stderr


def test_client_without_an_answer_does_not_blame_tls() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        got = call("--url", f"https://127.0.0.1:{closed.getsockname()[1]}", "ps")
    assert got.exit_code == 69
    assert "connection refused" in got.stderr
    assert "--cert" not in got.stderr


def test_a_certificate_that_is_not_believed_is_not_tried_again(ca: Authority, start: Start) -> None:
    own = ca.server()
    rig = start(TlsFiles(own.cert, own.key))
    with Client(rig.url) as client:
        client.patience_s = 600.0
        with pytest.raises(Exception, match="does not come from") as caught:
            client.status()
    assert not isinstance(caught.value, Unreachable)


def test_client_sends_no_password_of_another_program(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login eve password word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Client(rest.url) as client:
        client._session.trust_env = True  # as for a host that is not this one
        request = client._session.prepare_request(__import__("requests").Request("GET", rest.url))
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("url", "keeps"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("https://gpu.example.com", True),
        ("http://gpu.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
    ],
)
def test_client_sends_a_secret_only_to_safe_addresses(url: str, keeps: bool) -> None:
    assert Reach(url).keeps_secrets is keeps


def test_options_come_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", "https://a")
    for name in ("CACERT", "CERT", "KEY"):
        monkeypatch.setenv(f"MESOS_GPU_{name}", f"/{name}")
    assert find_reach() == Reach("https://a", Path("/CACERT"), Path("/CERT"), Path("/KEY"))
    assert find_reach("https://b", Files("", "/c")) == Reach("https://b", None, Path("/c"), Path("/KEY"))
