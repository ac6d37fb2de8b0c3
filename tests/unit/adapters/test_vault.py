"""Secrets in Vault, by a server that says what Vault's documentation says, and some that do not."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.secrets import vault as vault_module
from mesos_gpu.adapters.secrets.vault import Vault, VaultSettings
from mesos_gpu.errors import BadConfiguration, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.secret import LARGEST_SECRET
from tests.vaults import DELETED, NO_MOUNT, TOKEN, VALUE, Scripted, handler_of, keeps, serving


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with serving(Scripted()) as scripted:
        yield scripted


@pytest.fixture
def settings(scripted: Scripted, tmp_path: Path) -> VaultSettings:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(f"{TOKEN}\n")
    return VaultSettings(f"http://127.0.0.1:{scripted.port}", file)


def told(answer: tuple[int, bytes], _path: str) -> tuple[int, bytes]:
    return answer


def refused(settings: VaultSettings, source: str = "team/hf") -> MesosGpuError:
    with pytest.raises(MesosGpuError) as error:
        Vault(settings).read(source)
    for each in (
        error.value,
        error.value.__cause__,
        error.value.__context__ if error.value.__cause__ else None,
    ):
        assert TOKEN not in str(each)
        assert VALUE not in str(each)
    return error.value


def test_vault_reads_both_versions_of_the_store(scripted: Scripted, settings: VaultSettings) -> None:
    scripted.answer = keeps({"value": VALUE, "token": "another"})
    store = Vault(settings)
    store.see()
    assert store.read("team/hf") == VALUE.encode()
    assert store.read("team/hf#token") == b"another"
    scripted.answer = keeps({"value": VALUE}, version=1)
    one = Vault(replace(settings, version=1, mount="kv/gpu", namespace="ml/research"))
    assert one.read("team/hf") == VALUE.encode()
    store.close()
    one.close()
    assert [path for path, _, _ in scripted.asked] == [
        "/v1/secret/data/team/hf", "/v1/secret/data/team/hf", "/v1/kv/gpu/team/hf",
    ]  # fmt: skip
    assert [namespace for *_, namespace in scripted.asked] == ["", "", "ml/research"]


def test_vault_names_a_missing_secret_or_field(scripted: Scripted, settings: VaultSettings) -> None:
    scripted.answer = keeps({"value": VALUE})
    assert isinstance(refused(settings, "team/other"), NotFound)
    assert "no field token" in refused(settings, "team/hf#token").what
    for answer in (DELETED, NO_MOUNT):
        scripted.answer = partial(told, answer)
        assert "Vault has no secret team/hf of its store secret" in refused(settings).what
    scripted.answer = lambda _: (200, b'{"data":{"data":null}}')
    assert isinstance(refused(settings), NotFound)


@pytest.mark.parametrize(
    "source", ["../sys/raw/x", "team/../../sys", "team//hf", "/team", "team/hf?version=1", ""]
)
def test_vault_is_not_asked_for_paths_outside(
    scripted: Scripted, settings: VaultSettings, source: str
) -> None:
    refused(settings, source)
    assert scripted.asked == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "does not let the scheduler read the secret team/hf of its store secret"),
        (503, "sealed"),
        (500, "answered 500"),
        (429, "answered 429"),
        (302, "another server"),
    ],
)
def test_vault_refusal_says_why(scripted: Scripted, settings: VaultSettings, status: int, says: str) -> None:
    scripted.answer = lambda _: (status, json.dumps({"errors": [TOKEN, VALUE]}).encode())
    error = refused(settings)
    assert isinstance(error, Unavailable)
    assert says in error.what


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"data": 5}', b"x" * 100, b'{"data":' * 5000, b'{"data":{"data":{"value":5}}}',
             json.dumps({"data": {"data": {"value": "x" * (LARGEST_SECRET + 1)}}}).encode()]
)  # fmt: skip
def test_vault_answer_that_is_malformed_is_refused(
    scripted: Scripted, settings: VaultSettings, body: bytes
) -> None:
    scripted.answer = lambda _: (200, body)
    assert isinstance(refused(settings), Unavailable)


def test_vault_answer_without_an_end_is_ended(
    scripted: Scripted, settings: VaultSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_module, "_ANSWER_S", 0.3)
    scripted.drips = True
    assert "Vault" in refused(settings).what


def test_vault_answer_that_is_too_large_is_refused(scripted: Scripted, settings: VaultSettings) -> None:
    scripted.answer = lambda _: (200, b" " * (16 * LARGEST_SECRET))
    assert "too large" in refused(settings).what


def test_vault_token_is_not_sent_to_another_host(scripted: Scripted, settings: VaultSettings) -> None:
    other = Scripted()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(other)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        scripted.redirect = f"http://127.0.0.1:{server.server_address[1]}/v1/secret/data/team/hf"
        assert "another server" in refused(settings).what
        server.shutdown()
        thread.join()
    assert other.asked == []


def test_vault_uses_no_proxy_of_the_environment(
    scripted: Scripted, settings: VaultSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    scripted.answer = keeps({"value": VALUE})
    assert Vault(settings).read("team/hf") == VALUE.encode()


def test_vault_token_that_is_renewed_holds_at_once(scripted: Scripted, settings: VaultSettings) -> None:
    scripted.answer = keeps({"value": VALUE})
    store = Vault(settings)
    settings.token_file.write_text("hvs.old")
    with pytest.raises(Unavailable, match="does not let the scheduler read"):
        store.read("team/hf")
    settings.token_file.write_text(TOKEN)
    assert store.read("team/hf") == VALUE.encode()


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "smörgås", "x" * 5000])
def test_vault_token_file_that_is_empty_is_refused(
    scripted: Scripted, settings: VaultSettings, text: str
) -> None:
    settings.token_file.write_text(text)
    assert "no token" in refused(settings).what
    assert scripted.asked == []


def test_vault_token_readable_by_others_is_not_used(scripted: Scripted, settings: VaultSettings) -> None:
    settings.token_file.chmod(0o640)
    assert "others may have read it" in refused(settings).what
    with pytest.raises(BadConfiguration, match="others may have read it"):
        Vault(settings).see()
    settings.token_file.unlink()
    assert "cannot be used: No such file" in refused(settings).what
    assert scripted.asked == []


@pytest.mark.parametrize(
    "change",
    [{"url": "http://vault.example:8200"}, {"url": "vault:8200"}, {"url": "https://u:p@vault"}, {"url": "ftp://vault"},
     {"url": "https://vault:x"},
     {"mount": "/secret"}, {"mount": ""}, {"mount": "a b"}, {"namespace": "a/"}, {"ca_cert": Path("/none")}],
)  # fmt: skip
def test_vault_settings_that_contradict_are_refused(settings: VaultSettings, change: dict[str, Any]) -> None:
    with pytest.raises(BadConfiguration, match="--vault-"):
        Vault(replace(settings, **change)).see()


def test_unreachable_vault_is_reported(settings: VaultSettings) -> None:
    assert "cannot be reached" in refused(replace(settings, url="http://127.0.0.1:1")).what


def test_vault_certificate_of_an_unknown_authority_is_refused(
    settings: VaultSettings, tmp_path: Path
) -> None:
    """A certificate of the right name that is signed by itself."""
    certificate = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate)
    scripted = Scripted(answer=keeps({"value": VALUE}))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(scripted)) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        there = replace(settings, url=f"https://127.0.0.1:{server.server_address[1]}")
        assert "cannot be reached: SSLCertVerificationError" in refused(there).what
        assert scripted.asked == []
        assert Vault(replace(there, ca_cert=certificate)).read("team/hf") == VALUE.encode()
        server.shutdown()
        thread.join()


def own_certificate(directory: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "vault")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    written = directory / "vault.pem"
    written.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return written
