"""A scheduler that asks who calls: a real server, a real engine, tokens that a test makes."""

import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import Any, Final

import requests
from starlette.middleware import Middleware

from mesos_gpu.access.rate import Limits
from mesos_gpu.access.tokens import ID_BYTES, SALT_BYTES, SECRET_BYTES, digest_of, parts_of, text_of
from mesos_gpu.adapters.proofs.prover import Prover
from mesos_gpu.adapters.proofs.tokens import Tokens
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.access.caller import Narrowing
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.access.token import Token
from mesos_gpu.ports import AuditTrail, Clock
from tests.contract.rig import knowing
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

DOCUMENT = AccessDocument(
    1,
    bindings=(
        Binding(names=("root",), roles=("admin",)),
        Binding(names=("ann", "bob"), roles=("user",), queues=("default",)),
        Binding(groups=("watchers",), names=("vic",), roles=("viewer",)),
    ),
)


class TokenStore:
    """Tokens as who keeps them has them."""

    def __init__(self) -> None:
        self.kept: dict[str, Token] = {}
        self.asked: list[str] = []
        self.used: list[tuple[str, str]] = []

    def make(
        self,
        name: str,
        *,
        life_s: float = 3600.0,
        groups: tuple[str, ...] = (),
        narrowing: Narrowing | None = None,
    ) -> str:
        """A token's text."""
        id, secret, salt = token_hex(ID_BYTES), token_urlsafe(SECRET_BYTES), token_hex(SALT_BYTES)
        begin = time.time() - 10
        until = time.time() + life_s
        self.kept[id] = Token(
            id, name, salt, digest_of(salt, secret), begin, until, groups, narrowing or Narrowing()
        )
        return text_of(id, secret)

    def prover(self) -> Tokens:
        return Tokens(self.find, lambda *use: self.used.append(use))

    def find(self, token_id: str) -> Token | None:
        self.asked.append(token_id)
        return self.kept.get(token_id)

    def revoke(self, text: str) -> None:
        del self.kept[id_of(text)]


def id_of(token: str) -> str:
    """The public part."""
    parts = parts_of(token)
    assert parts
    return parts[0]


class LoginRig:
    """Use as a context manager is not needed: `close` ends it."""

    def __init__(
        self,
        provers: Sequence[Prover],
        *,
        local: LocalSocket | None = None,
        tls: ReloadedTls | None = None,
        audit: AuditTrail | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        uploads: UploadStore | None = None,
        task_key: Callable[[], bytes] = bytes,
        outer: Callable[[Who], Sequence[Middleware]] = lambda _who: (),
        **more: Any,
    ) -> None:
        self.daemon = knowing(DOCUMENT)(
            RecordingStore(),
            RecordingStore().load(),
            FakeDriver(),
            clock or FakeClock(),
            Settings.of("e", "m"),
        )
        self.who = Who(provers, **more)
        settings = ApiSettings(
            "http://w", "0.1.0", who=self.who, audit=audit, limits=limits or Limits(), uploads=uploads,
            task_key=task_key,
        )  # fmt: skip
        self.app = create_app(self.daemon, settings, outer(self.who))
        self.server = Server(self.app, listen("127.0.0.1", 0), local=local, tls=tls)
        self.url = self.server.url
        self.daemon.start()
        self.daemon.put(ev.Registered("fw", "http://master"))

    def call(self, verb: str, path: str, token: object = None, **more: Any) -> requests.Response:
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(verb, self.url + path, headers=headers, timeout=60, **more)

    def close(self) -> None:
        self.server.stop()
        self.daemon.stop()


def basic(name: str, password: object) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def said(response: requests.Response) -> tuple[int, str]:
    return response.status_code, str(response.json()["error"]["message"])


#: Program that asks a Unix socket for jobs, and prints the status and the body of the answer.
ASKING: Final = (
    "import http.client, socket, sys\n"
    "c = http.client.HTTPConnection('localhost'); c.sock = socket.socket(socket.AF_UNIX)\n"
    "c.sock.connect(sys.argv[1]); c.request('GET', '/v1/jobs'); r = c.getresponse()\n"
    "print(r.status, r.read().decode())"
)


def asks(
    path: Path, *, user: str | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """What another process is answered by a Unix socket: the status of GET /v1/jobs, and the message of an error."""
    python = "/usr/bin/python3" if user else sys.executable
    done = subprocess.run(
        [python, "-c", ASKING, str(path)], user=user, extra_groups=[] if user else None, cwd="/",
        env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    status, _, body = done.stdout.partition(" ")
    return int(status), str(json.loads(body).get("error", {}).get("message", ""))
