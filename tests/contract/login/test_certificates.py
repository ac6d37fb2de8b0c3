"""Certificates of clients as names, over a real TLS server."""

import json
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from mesos_gpu.access.name_maps import parse
from mesos_gpu.adapters.proofs.certificates import Certificates, CertName
from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.adapters.tls.trust import Trust, client_context
from tests.certificates import Authority, Made
from tests.contract.login.rig import LoginRig, TokenStore

REFUSED = (ssl.SSLError, ConnectionError)


@pytest.fixture
def start(ca: Authority, store: TokenStore) -> Iterator[Callable[..., LoginRig]]:
    rigs: list[LoginRig] = []

    def begin(name: CertName = CertName.COMMON_NAME, *maps: str, crl: Path | None = None) -> LoginRig:
        own = ca.server()
        tls = ReloadedTls(TlsFiles(own.cert, own.key, ca.cert, Clients.OPTIONAL, crl), look_s=0.05)
        rigs.append(LoginRig([store.prover(), Certificates(name, [parse(each) for each in maps])], tls=tls))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.close()


def ask(
    rig: LoginRig, ca: Authority, made: Made | None, path: str = "/v1/whoami", **headers: str
) -> tuple[int, Any]:
    trust = Trust(ca.cert, made.cert, made.key) if made else Trust(ca.cert)
    connection = HTTPSConnection("127.0.0.1", rig.server.port, timeout=60, context=client_context(trust))
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_common_name_is_the_name(start: Callable[..., LoginRig], ca: Authority) -> None:
    rig = start()
    status, who = ask(rig, ca, ca.client("ann"))
    assert (status, who["name"], who["proof"], who["session"]) == (200, "ann", "certificate", False)
    assert who["until"] is not None
    assert ask(rig, ca, ca.client("ann"), "/v1/jobs")[0] == 200
    assert ask(rig, ca, None, "/v1/jobs")[0] == 401


@pytest.mark.parametrize(
    ("kind", "maps", "names", "name"),
    [
        (CertName.EMAIL, (), [x509.RFC822Name("ann@example.org")], "ann@example.org"),
        (CertName.EMAIL, ("*@example.org=*",), [x509.RFC822Name("ann@example.org")], "ann"),
        (CertName.DNS, ("*.ci.example.org=ci-*",), [x509.DNSName("x.ci.example.org")], "ci-x"),
        (CertName.URI, ("spiffe://x/*=*",), [x509.UniformResourceIdentifier("spiffe://x/ann")], "ann"),
        (CertName.SUBJECT, ("CN=file,O=Example=ann",), [], "ann"),
    ],
)
def test_the_name_may_stand_elsewhere_and_be_mapped(
    start: Callable[..., LoginRig],
    ca: Authority,
    kind: CertName,
    maps: tuple[str, ...],
    names: list[x509.GeneralName],
    name: str,
) -> None:
    status, who = ask(start(kind, *maps), ca, ca.client("file", *names))
    assert (status, who["name"]) == (200, name)


@pytest.mark.parametrize(
    ("kind", "maps", "names", "told"),
    [
        (CertName.EMAIL, (), [], "the certificate has none of the field san-email"),
        (
            CertName.EMAIL,
            (),
            [x509.RFC822Name("a@x"), x509.RFC822Name("b@x")],
            "the certificate has several of the field san-email",
        ),
        (
            CertName.EMAIL,
            ("*@x=*",),
            [x509.RFC822Name("a@y")],
            "the san-email of the certificate is not a valid name",
        ),
    ],
)
def test_a_certificate_that_names_nobody_is_a_wrong_proof(
    start: Callable[..., LoginRig],
    ca: Authority,
    kind: CertName,
    maps: tuple[str, ...],
    names: list[x509.GeneralName],
    told: str,
) -> None:
    status, answer = ask(start(kind, *maps), ca, ca.client("file", *names))
    assert (status, answer["error"]["message"]) == (401, told)


def test_a_token_counts_before_it_and_a_wrong_token_is_not_passed_over(
    start: Callable[..., LoginRig], ca: Authority, store: TokenStore
) -> None:
    rig, made = start(), ca.client("ann")
    assert ask(rig, ca, made, Authorization=f"Bearer {store.make('bob')}")[1]["name"] == "bob"
    assert ask(rig, ca, made, Authorization="Bearer mgpu_x")[0] == 401


def test_login_certificate_of_another_authority_or_revoked_is_refused_by_tls(
    start: Callable[..., LoginRig], ca: Authority, tmp_path: Path
) -> None:
    revoked = ca.client("ann")
    rig = start(crl=ca.crl(revoked))
    with pytest.raises(REFUSED):
        ask(rig, ca, revoked)
    (tmp_path / "other").mkdir()
    with pytest.raises(REFUSED):
        ask(rig, ca, Authority(tmp_path / "other", "Other CA").client("ann"))
    assert ask(rig, ca, ca.client("bob"))[1]["name"] == "bob"


def test_session_cookie_under_tls_is_for_tls_alone(
    start: Callable[..., LoginRig], ca: Authority, store: TokenStore
) -> None:
    rig = start()
    connection = HTTPSConnection(
        "127.0.0.1", rig.server.port, timeout=60, context=client_context(Trust(ca.cert))
    )
    body = json.dumps({"token": store.make("ann")})
    connection.request("POST", "/v1/session", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    cookie = answer.headers["Set-Cookie"]
    connection.request("GET", "/v1/whoami", headers={"Cookie": cookie.partition(";")[0]})
    who = json.loads(connection.getresponse().read())
    connection.request(
        "GET", "/v1/whoami", headers={"Cookie": cookie.partition(";")[0].removeprefix("__Host-")}
    )
    plain = json.loads(connection.getresponse().read())
    connection.close()
    assert cookie.startswith("__Host-mesos_gpu=")
    assert cookie.endswith("Path=/; HttpOnly; SameSite=Strict; Secure")
    assert (who["name"], who["session"]) == ("ann", True)
    assert plain["name"] is None
