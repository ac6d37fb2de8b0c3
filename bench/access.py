"""`python -m bench access`: the time that authentication and authorization add to requests."""

import base64
import datetime
import http.client
import json
import logging
import os
import random
import secrets
import socket
import ssl
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bench.api import serving
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.api.login.who import Who
    from mesos_gpu.model.access.document import AccessDocument
    from mesos_gpu.model.access.token import Token
    from mesos_gpu.scheduler.daemon import Daemon

AGENTS: Final = 50
GPUS: Final = 8  # of each
QUEUES: Final = 40
OWNERS: Final = 100
ROLES: Final = 50
BINDINGS: Final = 200
TOKENS: Final = 1000
ADMIN: Final = "boss"
FEW: Final = "u7"  # sees few jobs and few apps
_PASSWORD: Final = secrets.token_urlsafe(16)
_ENV: Final = {"A": "b"}
_WARM: Final = 5  # rounds that do not count
_JOB: Final = {"command": "true", "user": "nobody", "queue": "q7", "env": _ENV, "gpus": 1}
#: What is asked, by its name in the table: verb, path, body.
ROUTES: Final[Mapping[str, tuple[str, str, object]]] = {
    "GET /v1/gpus": ("GET", "/v1/gpus", None),
    "GET /v1/jobs": ("GET", "/v1/jobs?limit=100", None),
    "POST /v1/jobs": ("POST", "/v1/jobs", _JOB),
    "GET /v2/apps": ("GET", "/v2/apps", None),
}


@click.command()
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(1), help="Jobs of many owners.")
@click.option("--apps", default=1000, show_default=True, type=click.IntRange(1), help="Apps of many teams.")
@click.option(
    "--rounds",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Requests of each kind with each proof.",
)
@json_option
def access(jobs: int, apps: int, rounds: int, as_json: bool) -> None:
    """Measure the time that each kind of proof adds to the median of a request.

    Requests with each kind of proof and without one take turns. One scheduler answers them over plain HTTP, a Unix
    socket and TLS. Its access document has 50 roles and 200 bindings, and there are 1,000 tokens. "few" is a user who
    sees few jobs and apps.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        output.note(f"{jobs} jobs, {apps} apps, {rounds} rounds")
        with serving(_serve, Path(top), jobs, apps) as pipe, ExitStack() as stack:
            told: Sequence[dict[str, Any]] = pipe.recv()  # arguments of `_Caller`
            callers = [stack.enter_context(_Caller(**each)) for each in told]
            rows = [row for route in ROUTES for row in _measured(route, callers, rounds)]
    if as_json:
        output.document(rows)
        return
    heads = ("ROUTE", "PROOF", "P50 MS", "WITHOUT", "ADDED", "KIB")
    output.table(heads, [tuple(row.values()) for row in rows], empty="")


# --- callers


@dataclass
class _Caller:
    """A caller with one kind of proof, whose connection stays open.

    Attributes:
        proof: Name of the proof in the table.
        beside: Name of the caller without proof on the same kind of connection; empty for that caller itself.
        place: Port of 127.0.0.1, or path of a Unix socket.
        headers: Header fields with the proof.
        tls: Files of the server's certificate, and of the client's certificate and key if it has them.
    """

    proof: str
    beside: str
    place: int | str
    headers: Mapping[str, str]
    tls: tuple[str, ...] = ()

    def __enter__(self) -> "_Caller":
        self.connection = http.client.HTTPConnection("localhost", timeout=60)
        self.connection.sock = self._connected()
        self.connection.auto_open = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _connected(self) -> socket.socket:
        if isinstance(self.place, str):
            made = socket.socket(socket.AF_UNIX)
            made.connect(self.place)
            return made
        made = socket.create_connection(("127.0.0.1", self.place), timeout=60)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.tls:
            return made
        context = ssl.create_default_context(cafile=self.tls[0])
        if len(self.tls) > 1:
            context.load_cert_chain(*self.tls[1:])
        return context.wrap_socket(made, server_hostname="localhost")

    def ask(self, verb: str, path: str, body: object = None) -> tuple[float, bytes]:
        """Send a request; return the milliseconds until the answer is complete, and its body.

        Raises:
            MesosGpuError: The answer has an error.
        """
        sent = None if body is None else json.dumps(body)
        headers = {**self.headers, **({} if body is None else {"Content-Type": "application/json"})}
        began = time.perf_counter()
        self.connection.request(verb, path, sent, headers)
        answer = self.connection.getresponse()
        said = answer.read()
        took_ms = (time.perf_counter() - began) * 1000
        if answer.status >= 400:
            what = f"{verb} {path} ({self.proof}): {answer.status} {said[:300].decode()}"
            raise MesosGpuError(what, remedy="report it: the scheduler is not well")
        return took_ms, said


def _measured(route: str, callers: Sequence[_Caller], rounds: int) -> Iterator[dict[str, object]]:
    """Yield the rows of a route: each caller sends one request in each round, in random order."""
    took: dict[str, list[float]] = defaultdict(list)
    sizes: dict[str, int] = {}
    turns, chance = list(callers), random.Random(7)
    verb, path, body = ROUTES[route]
    for n in range(_WARM + rounds):
        chance.shuffle(turns)
        for caller in turns:
            took_ms, said = caller.ask(verb, path, body)
            if verb == "POST":
                callers[0].ask("DELETE", f"{path}/{json.loads(said)['id']}")
            if n >= _WARM:
                took[caller.proof].append(took_ms)
                sizes[caller.proof] = len(said)
    for caller in callers:
        own, beside = took[caller.proof], took[caller.beside or caller.proof]
        added = statistics.median(a - b for a, b in zip(own, beside, strict=True))  # of the same round
        yield {
            "route": route,
            "proof": caller.proof,
            "p50_ms": round(statistics.median(own), 2),
            "without_ms": round(statistics.median(beside), 2) if caller.beside else None,
            "added_ms": round(added, 2) if caller.beside else None,
            "kib": round(sizes[caller.proof] / 1024),
        }


# --- the scheduler, in a process of its own


def _serve(top: Path, jobs: int, apps: int, pipe: Connection) -> None:
    """Serve three kinds of connections, each with and without proofs, until the pipe has a message."""
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.adapters.sqlite_store import SqliteStore
    from mesos_gpu.engine import events as ev
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.oidc.issuer import OidcIssuer
    from tests.doubles.ready_cluster import ReadyCluster

    logging.basicConfig(filename=top / "log", level=logging.INFO)
    clock, store = SystemClock(), SqliteStore(top / "state" / "state.sqlite")

    def put(event: ev.Event) -> None:
        daemon.put(event)

    cluster = ReadyCluster(AGENTS, put, clock.now, GPUS)
    daemon = Daemon(store, store.load(), cluster, clock, Settings.of("executor", "monitor"))
    daemon.start()
    with OidcIssuer() as issuer, ExitStack() as stack:
        texts = _fill(daemon, jobs, apps)
        signed = issuer.token(preferred_username=ADMIN, groups=["g1"], exp=int(time.time()) + 3600)
        headers = {
            "token": {"Authorization": f"Bearer {texts[ADMIN]}"},
            "htpasswd": {"Authorization": f"Basic {_basic(ADMIN, _PASSWORD)}"},
            "oidc": {"Authorization": f"Bearer {signed}"},
            "token, few": {"Authorization": f"Bearer {texts[FEW]}"},
        }
        pipe.send(_open_servers(top, daemon, _who(top, daemon, issuer.url), headers, stack))
        pipe.recv()
    daemon.stop()


def _open_servers(
    top: Path, daemon: "Daemon", who: "Who", headers: Mapping[str, Mapping[str, str]], stack: ExitStack
) -> list[dict[str, Any]]:
    """Open the servers; return the arguments of each `_Caller`."""
    from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
    from mesos_gpu.adapters.tls.clients import Clients
    from mesos_gpu.adapters.tls.reload import ReloadedTls
    from mesos_gpu.adapters.tls.server import TlsFiles
    from mesos_gpu.api.app import create_app
    from mesos_gpu.api.http.server import Server, listen
    from mesos_gpu.api.http.sockets import LocalSocket
    from mesos_gpu.api.settings import ApiSettings

    trail = AuditLog(AuditSettings(top / "audit"))
    stack.callback(trail.close)
    cert, own = _certificate(top, "localhost"), _certificate(top, ADMIN)
    place: dict[str, tuple[int, str, int]] = {}
    for name, asked in (("open", None), ("proofs", who)):
        settings = ApiSettings("http://w", "1", who=asked, audit=trail)
        local = LocalSocket(top / name / "api.sock")
        tls = ReloadedTls(TlsFiles(*cert, client_ca=own[0], clients=Clients.OPTIONAL))
        plain_server = Server(create_app(daemon, settings), listen("127.0.0.1", 0), local=local)
        stack.callback(plain_server.stop)
        tls_server = Server(create_app(daemon, settings), listen("127.0.0.1", 0), tls=tls)
        stack.callback(tls_server.stop)
        place[name] = plain_server.port, str(local.path), tls_server.port
    plain, shown = (str(cert[0]),), (str(cert[0]), *map(str, own))
    made = [_Caller("none", "", place["open"][0], {})]
    made += [_Caller(name, "none", place["proofs"][0], header) for name, header in headers.items()]
    made += [_Caller("none, socket", "", place["open"][1], {})]
    made += [_Caller("socket", "none, socket", place["proofs"][1], {})]
    made += [_Caller("none, TLS", "", place["open"][2], {}, plain)]
    made += [_Caller("certificate", "none, TLS", place["proofs"][2], {}, shown)]
    return [vars(each) for each in made]


def _who(top: Path, daemon: "Daemon", issuer: str) -> "Who":
    import bcrypt

    from mesos_gpu.access.guesses import Guesses
    from mesos_gpu.access.proofs import ORDER
    from mesos_gpu.adapters.proofs.certificates import Certificates
    from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
    from mesos_gpu.adapters.proofs.local import LocalCallers
    from mesos_gpu.adapters.proofs.passwords import Passwords
    from mesos_gpu.adapters.proofs.prover import Prover
    from mesos_gpu.adapters.proofs.tokens import Tokens
    from mesos_gpu.api.login.who import Who
    from mesos_gpu.scheduler.options.identity.oidc import OidcOptions

    guesses, file = Guesses(), top / "htpasswd"
    file.write_text(f"{ADMIN}:{bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(10)).decode()}\n")
    file.chmod(0o600)
    provers: list[Prover] = [
        Tokens(lambda id: daemon.tokens.get(id), daemon.note_token_use),
        Passwords(Htpasswd(file), guesses),
        Certificates(),
        OidcOptions(oidc_issuer=issuer).prover(),
        LocalCallers(),
    ]
    return Who(
        provers, [each for each in ORDER if each in {prover.kind for prover in provers}], guesses=guesses
    )


def _basic(name: str, password: str) -> str:
    return base64.b64encode(f"{name}:{password}".encode()).decode()


def _certificate(top: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate; return the PEM files of certificate and key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - day, now + day)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    cert, private = top / f"{name}.pem", top / f"{name}.key"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return cert, private


# --- documents, tokens, jobs and apps


def _fill(daemon: "Daemon", jobs: int, apps: int) -> dict[str, str]:
    """Create an access document, tokens, jobs and apps; return a token by user name."""
    from mesos_gpu.api.asking import apps_change, new_job
    from mesos_gpu.engine.events import AccessChanged
    from mesos_gpu.model.apps.app import App, Group
    from mesos_gpu.model.jobs.job import JobSpec

    daemon.request(AccessChanged(_document(), 0)).result(60)
    texts = dict(_tokens(daemon))
    made = []
    for n in range(jobs):
        spec = JobSpec(
            f"job{n}", "true", cpus=0.1, mem_mib=32, gpus=1, user="nobody", queue=f"q{n % QUEUES}", env=_ENV
        )
        made.append(daemon.request(new_job(spec, f"u{n % OWNERS}")))
    for each in made:
        each.result(60)
    teams: dict[str, list[App]] = defaultdict(list)
    for n in range(apps):
        team = f"/team{n % QUEUES}"
        app = App(
            f"{team}/a{n}", cmd="true", cpus=0.1, mem_mib=32, instances=0, owner=f"u{n % OWNERS}", env=_ENV
        )
        teams[team].append(app)
    groups = tuple(Group(team, tuple(each)) for team, each in teams.items())
    daemon.request(apps_change(lambda root: replace(root, groups=groups))).result(60)
    return texts


def _document() -> "AccessDocument":
    """Return roles and bindings like those of a company with many teams."""
    from mesos_gpu.model.access.document import AccessDocument, Binding, Role, Shared

    rights = (
        "job:run",
        "job:see",
        "job:read:own",
        "job:kill:own",
        "app:see",
        "app:read",
        "app:write:/shop/*",
        "gpu:see",
    )
    roles = tuple(Role(f"role{n}", rights[: 1 + n % len(rights)]) for n in range(ROLES))
    bindings = [Binding((ADMIN, "root"), (), ("admin",)), Binding(("*",), (), ("viewer-of-gpus",))]
    for n in range(BINDINGS - len(bindings)):
        names = tuple(f"u{(n * 5 + i) % OWNERS}" for i in range(5))
        team = f"team{n % QUEUES}"
        bindings.append(
            Binding(names, (f"g{n}",), (f"role{n % (ROLES - 1)}",), (f"q{n % QUEUES}",), (f"/{team}/*",))
        )
    bindings[-1] = Binding((FEW,), (), ("user",), ("q7", "q8"), ("/team7/*",))
    roles = (*roles[:-1], Role("viewer-of-gpus", ("gpu:see", "node:see")))
    return AccessDocument(
        roles=roles, bindings=tuple(bindings), unix_users={FEW: "nobody"}, shares={"q8": (Shared.JOBS,)}
    )


def _tokens(daemon: "Daemon") -> Iterator[tuple[str, str]]:
    from mesos_gpu.access import tokens
    from mesos_gpu.engine.events import TokenCreated

    made = [_token(ADMIN if n == 0 else f"u{n % OWNERS}") for n in range(TOKENS)]
    for future in [daemon.request(TokenCreated(token, 86400.0)) for token, _ in made]:
        future.result(60)
    for token, secret in made:
        yield token.name, tokens.text_of(token.id, secret)


def _token(name: str) -> tuple["Token", str]:
    from mesos_gpu.access import tokens
    from mesos_gpu.model.access.token import Token

    secret, salt = secrets.token_urlsafe(tokens.SECRET_BYTES), secrets.token_hex(tokens.SALT_BYTES)
    id, now = secrets.token_hex(tokens.ID_BYTES), time.time()
    return Token(id, name, salt, tokens.digest_of(salt, secret), now, now + 86400.0, created_by=name), secret
