"""Debian's docker-registry, open or behind a login: by htpasswd, or by a token service of the test's own."""

import base64
import contextlib
import hashlib
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jwt
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mesos_gpu.local.own_ports import free_port
from tests.conftest import wait_until
from tests.doubles.images import layer

USER: Final = "puller"
_KIND: Final = "application/vnd.docker"
_OCI: Final = "application/vnd.oci.image"
MANIFEST: Final = f"{_KIND}.distribution.manifest.v2+json"
LIST: Final = f"{_KIND}.distribution.manifest.list.v2+json"
OCI_MANIFEST: Final = f"{_OCI}.manifest.v1+json"
OCI_INDEX: Final = f"{_OCI}.index.v1+json"
AMD: Final = {"os": "linux", "architecture": "amd64"}
ARM: Final = {"os": "linux", "architecture": "arm64"}


def missing() -> str:
    """Return what this host lacks for a registry with a login; empty if nothing."""
    lacking = [name for name in ("docker-registry", "htpasswd") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (scripts/install_test_tools.sh)" if lacking else ""


@dataclass
class Running:
    """A registry. `url` asks for the login, `back` has the same images and asks for none."""

    url: str
    back: str
    password: str
    refresh_token: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)  # of the token service: method, credentials

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    def config(self, password: str | None = None) -> str:
        """Return a config.json with the login."""
        pair = f"{USER}:{password or self.password}"
        return json.dumps({"auths": {self.host: {"auth": base64.b64encode(pair.encode()).decode()}}})


@contextlib.contextmanager
def registry(directory: Path, auth: str = "none", password: str = "pa:ss") -> Iterator[Running]:
    """Run a registry until the end of the context.

    Args:
        directory: Directory of this registry alone.
        auth: "none", "basic" or "token".
        password: Password of `USER`.
    """
    directory.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        back = stack.enter_context(_served(directory, "back", {}))
        if auth == "none":
            yield Running(back, back, password)
            return
        if auth == "basic":
            line = subprocess.run(
                ["htpasswd", "-Bbn", USER, password], check=True, capture_output=True, text=True
            ).stdout
            (directory / "htpasswd").write_text(line)
            settings: dict[str, Any] = {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}
            yield Running(stack.enter_context(_served(directory, "front", settings)), back, password)
            return
        service = stack.enter_context(_TokenService(directory, password))
        url = stack.enter_context(_served(directory, "front", service.settings))
        yield Running(url, back, password, service.refresh_token, service.asked)


@contextlib.contextmanager
def _served(directory: Path, name: str, auth: Mapping[str, Any]) -> Iterator[str]:
    port = free_port()
    config = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        **({"auth": auth} if auth else {}),
    }
    (directory / f"{name}.yml").write_text(json.dumps(config))
    program = shutil.which("docker-registry") or "docker-registry"
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", directory / f"{name}.yml"], stdout=log, stderr=log)
    try:
        wait_until("the registry", lambda: _listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class _TokenService:
    """Gives tokens to `USER`, and to others tokens that allow nothing (Token Authentication Specification)."""

    def __init__(self, directory: Path, password: str) -> None:
        self.password, self.refresh_token = password, "refresh-me"
        self.asked: list[tuple[str, str]] = []
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._der = certificate.public_bytes(serialization.Encoding.DER)
        (directory / "root.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.headers.get("Authorization", "")
                service.asked.append(("GET", given))
                pair = f"{USER}:{service.password}".encode()
                good = given == f"Basic {base64.b64encode(pair).decode()}"
                self._answer(401 if given and not good else 200, urlsplit(self.path).query, good=good)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                given = parse_qs(body).get("refresh_token", [""])[0]
                service.asked.append(("POST", given))
                good = given == service.refresh_token
                self._answer(200 if good else 401, body, good=good)

            def _answer(self, status: int, query: str, *, good: bool) -> None:
                scope = parse_qs(query).get("scope", [""])[0]
                name = "access_token" if self.command == "POST" else "token"
                text = json.dumps({name: service.token(scope if good else "")} if status == 200 else {})
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.settings = {
            "token": {
                "realm": f"http://127.0.0.1:{self._server.server_port}/token",
                "service": "test",
                "issuer": "test",
                "rootcertbundle": str(directory / "root.pem"),
            }
        }

    def __enter__(self) -> "_TokenService":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, scope: str) -> str:
        access = []
        if scope:
            kind, name, actions = scope.split(":")
            access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        now = int(time.time())
        claims = {
            "iss": "test", "aud": "test", "sub": USER, "exp": now + 60, "nbf": now - 10, "iat": now, "jti": "1",
            "access": access,
        }  # fmt: skip
        headers = {"x5c": [base64.b64encode(self._der).decode()]}
        return jwt.encode(claims, self._key, algorithm="ES256", headers=headers)


def push_blob(registry: str, name: str, data: bytes) -> dict[str, Any]:
    """Put a blob into an open registry; return digest and size."""
    with requests.Session() as session:
        place = session.post(f"{registry}/v2/{name}/blobs/uploads/").headers["Location"]
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        session.put(place, params={"digest": digest}, data=data).raise_for_status()
    return {"digest": digest, "size": len(data)}


def push_manifest(registry: str, name: str, tag: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Put a manifest or a list of them into an open registry; return its descriptor."""
    data = json.dumps(body).encode()
    header = {"Content-Type": str(body["mediaType"])}
    answer = requests.put(f"{registry}/v2/{name}/manifests/{tag}", data=data, headers=header)
    answer.raise_for_status()
    digest = answer.headers["Docker-Content-Digest"]
    return {"mediaType": body["mediaType"], "digest": digest, "size": len(data)}


def push(
    registry: str,
    name: str,
    tag: str,
    config: Mapping[str, Any],
    *,
    layers: Sequence[bytes] | None = None,
    platform: Mapping[str, str] = AMD,
    oci: bool = False,
) -> dict[str, Any]:
    """Put an image into an open registry; return the descriptor of its manifest."""
    files = [layer({"etc": None})] if layers is None else list(layers)
    ids = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in files]
    whole = {**platform, "config": config, "rootfs": {"type": "layers", "diff_ids": ids}}
    of_config = f"{_OCI}.config.v1+json" if oci else f"{_KIND}.container.image.v1+json"
    of_layer = f"{_OCI}.layer.v1.tar" if oci else f"{_KIND}.image.rootfs.diff.tar"
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST if oci else MANIFEST,
        "config": {"mediaType": of_config} | push_blob(registry, name, json.dumps(whole).encode()),
        "layers": [{"mediaType": of_layer} | push_blob(registry, name, each) for each in files],
    }
    return push_manifest(registry, name, tag, body)
