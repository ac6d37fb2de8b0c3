"""TLS files that cannot be used, each named with what to do."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.peer import Peer, peer_from
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.tls.server import TlsFiles, load
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration
from tests.certificates import DAY, Authority, pem, write


def files(ca: Authority) -> TlsFiles:
    own = ca.server()
    return TlsFiles(own.cert, own.key, ca.cert, Clients.REQUIRED, ca.crl())


BROKEN: dict[str, tuple[Callable[[TlsFiles], object], str]] = {
    "no certificate": (lambda f: f.certificate.unlink(), "server.pem: certificate with the key"),
    "no key": (lambda f: f.key.unlink(), "server.key: the key: No such file"),
    "a key that others read": (lambda f: f.key.chmod(0o604), "mode 0604"),
    "a key that a group writes": (lambda f: f.key.chmod(0o660), "mode 0660"),
    "a certificate that is text": (lambda f: f.certificate.write_text("x"), "not readable as PEM"),
    "a certificate that is empty": (lambda f: f.certificate.write_text(""), "not readable as PEM"),
    "an authority that is empty": (lambda f: f.client_ca and f.client_ca.write_text(""), "Test-CA.pem"),
    "a list that is text": (
        lambda f: f.crl and f.crl.write_text("x"),
        "revoked.crl: the file does not contain a list of revoked",
    ),
    "a list that is none": (
        lambda f: f.crl and f.crl.write_bytes(f.certificate.read_bytes()),
        "revoked.crl: the file does not contain a list of revoked",
    ),
    "a list that is cut": (
        lambda f: f.crl and f.crl.write_bytes(f.crl.read_bytes()[:200]),
        "revoked.crl: the file does not contain a list of revoked",
    ),
    "another's key": (
        lambda f: write(f.key, pem(ec.generate_private_key(ec.SECP256R1()))),
        "certificate and key do not match",
    ),
    "an encrypted key": (
        lambda f: write(f.key, pem(ec.generate_private_key(ec.SECP256R1()), b"word")),
        "the key is encrypted",
    ),
}


@pytest.mark.parametrize(("spoil", "said"), BROKEN.values(), ids=BROKEN)
def test_tls_files_that_cannot_be_used_are_named(
    ca: Authority, spoil: Callable[[TlsFiles], object], said: str
) -> None:
    given = files(ca)
    load(given)
    spoil(given)
    with pytest.raises(BadConfiguration) as caught:
        load(given)
    assert said in caught.value.what
    assert caught.value.remedy


def test_tls_files_give_subject_names_and_dates(ca: Authority) -> None:
    facts = load(files(ca)).facts
    assert facts.subject == "CN=localhost,O=Example"
    assert facts.names == ("localhost", "127.0.0.1", "::1")
    assert facts.crl_until is not None
    assert 88 * 86400 < facts.not_after - facts.not_before < 93 * 86400


def test_tls_key_may_be_readable_by_its_own_group(ca: Authority) -> None:
    given = files(ca)
    given.key.chmod(0o640)
    assert load(given).context.verify_mode is ssl.CERT_REQUIRED


def test_tls_files_announce_their_expiry(ca: Authority) -> None:
    own = ca.server(life=10 * DAY)
    tls = ReloadedTls(TlsFiles(own.cert, own.key))
    assert "expires in 10.0 days" in tls.state.problem
    expired = ca.server("late", life=-DAY)
    assert "has expired" in ReloadedTls(TlsFiles(expired.cert, expired.key)).state.problem


def test_tls_files_that_change_are_taken_after_a_rest_or_on_request(ca: Authority) -> None:
    own = ca.server()
    tls = ReloadedTls(TlsFiles(own.cert, own.key))
    assert not tls.look()
    ca.server()
    assert [tls.look(), tls.look(), tls.look()] == [False, True, False]
    ca.server()
    assert [tls.look(at_once=True), tls.look(at_once=True)] == [True, False]


def test_tls_files_of_a_client_are_read(ca: Authority, tmp_path: Path) -> None:
    alice = ca.client("alice")
    context = client_context(Trust(ca.cert, alice.cert, alice.key))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    both = tmp_path / "both.pem"
    both.write_bytes(alice.cert.read_bytes() + alice.key.read_bytes())
    client_context(Trust(ca.cert, both))
    for trust, said in (
        (Trust(tmp_path / "none"), "none: authorities: No such file"),
        (Trust(alice.key), "alice.key"),
        (Trust(ca.cert, alice.cert), "alice.pem has no key"),
        (Trust(ca.cert, None, alice.key), "a key without a certificate"),
        (Trust(ca.cert, alice.cert, ca.client("bob").key), "certificate and key do not match"),
    ):
        with pytest.raises(BadConfiguration) as caught:
            client_context(trust)
        assert said in caught.value.what


def test_tls_subject_name_is_escaped_as_one_part() -> None:
    told = {
        "subject": (
            (("organizationName", "a\\b"),),
            (("commonName", 'eve,CN=root+"x";#\n '), ("userId", "#7")),
        ),
        "subjectAltName": (("DNS", "a"), ("DNS", "b"), ("IP Address", "::1"), ("email", "e@x")),
    }
    peer = peer_from(told)
    assert peer.subject == r"CN=eve\,CN\=root\+\"x\"\;#\0a\ +UID=\#7,O=a\\b"
    assert (peer.dns, peer.emails, peer.uris) == (("a", "b"), ("e@x",), ())
    assert peer_from({}) == Peer("")
