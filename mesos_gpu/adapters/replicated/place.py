"""ZooKeeper path of a cluster's schedulers, zk://USER:PASSWORD@HOST:PORT,…/PATH, and the connection to it."""

import ipaddress
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_digest_acl

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration, Unavailable

#: Session timeout in seconds, after which a silent leader loses its place. Servers grant 2 to 20 of their ticks.
SESSION_S: Final = 4.0
#: Timeout in seconds for an answer of ZooKeeper.
ANSWER_S: Final = 3.0
_PORT: Final = 2181
_FORM: Final = "give zk://USER:PASSWORD@HOST:PORT,HOST:PORT,…/PATH, or file://FILE of a file with it"
#: Nodes below the path: candidates, the leader, batches, and all schedulers.
ELECTION, LEADER, LOG, MEMBERS = "election", "leader", "log", "members"
#: Nodes below the path: id of the log, the last deleted batch, and the key of launch secrets.
HISTORY, BASE, KEY = "history", "base", "key"
#: Failures that leave open whether the request was done.
AWAY: Final = (KazooException, KazooTimeoutError)
logging.getLogger("kazoo").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Place:
    """Servers of ZooKeeper, a path there, and the owner of the nodes below it.

    Attributes:
        hosts: Servers as HOST:PORT,…
        path: Path without a final slash.
        user: User that reads and writes there; "" if all clients may.
        password: Password of `user`.
    """

    hosts: str
    path: str
    user: str = ""
    password: str = field(default="", repr=False)

    def of(self, *names: str) -> str:
        """Return the path of a node below this path."""
        return "/".join([self.path, *names])

    def __str__(self) -> str:
        return f"zk://{self.hosts}{self.path}"


def parsed(given: str) -> Place:
    """Parse the value of --ha: a URL, or the name of a file with a URL.

    Raises:
        BadConfiguration: The URL is invalid; others may read the file; or there is no password for servers beyond
            loopback.
    """
    text = given
    if given.startswith("file://"):
        text = private.read_text(Path(given.removeprefix("file://")), "the address of ZooKeeper").strip()
    if not text.startswith("zk://"):
        raise BadConfiguration("--ha is not a ZooKeeper URL", remedy=_FORM)
    proof, at, rest = text.removeprefix("zk://").rpartition("@")
    hosts, slash, path = rest.partition("/")
    user, colon, password = proof.partition(":")
    path = path.rstrip("/")
    if not (hosts and slash and path) or (at and not (user and colon and password)) or "//" in path:
        raise BadConfiguration("--ha is not a ZooKeeper URL", remedy=_FORM)
    servers = [_server(server) for server in hosts.split(",")]
    if not at and not all(_is_loopback(name) for name, _ in servers):
        raise BadConfiguration(
            "--ha names ZooKeeper on other hosts without a user and a password: any client that reaches it could "
            "launch tasks",
            remedy=_FORM,
        )
    return Place(
        ",".join(f"{name}:{port}" for name, port in servers), f"/{path}", unquote(user), unquote(password)
    )


def _server(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":") if ":" in text else (text, "", str(_PORT))
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadConfiguration(f"--ha: {text!r} is not HOST:PORT", remedy=_FORM)
    return name, int(port)


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def connected(place: Place) -> KazooClient:
    """Connect, and create the nodes that must always exist.

    Raises:
        Unavailable: ZooKeeper does not answer.
        BadConfiguration: Existing nodes can be changed by other users.
    """
    acl = [make_digest_acl(place.user, place.password, all=True)] if place.user else None
    client = KazooClient(
        place.hosts,
        timeout=SESSION_S,
        auth_data=[("digest", f"{place.user}:{place.password}")] if place.user else None,
        default_acl=acl,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},
    )
    try:
        client.start(timeout=15)
        _prepare(client, place, acl)
    except (AuthFailedError, NoAuthError) as error:
        close(client)
        raise BadConfiguration(
            f"{place} in ZooKeeper is not open to the user of --ha",
            remedy="give the user and password that created it, or another path",
        ) from error
    except AWAY as error:
        close(client)
        raise Unavailable(
            f"ZooKeeper at {place} does not answer: {error!r}", remedy="start it, then this scheduler"
        ) from error
    except BaseException:
        close(client)
        raise
    return client


def _prepare(client: KazooClient, place: Place, acl: list[Any] | None) -> None:
    client.ensure_path(place.path)
    _check_owned(client, place.path, acl)
    for name in (ELECTION, LEADER, LOG, MEMBERS):
        try:
            client.create(place.of(name))
        except NodeExistsError:
            _check_owned(client, place.of(name), acl)


def _check_owned(client: KazooClient, path: str, acl: list[Any] | None) -> None:
    """Check that a ZooKeeper node has the ACL that it was made with, because the scheduler trusts its content.

    With `acl` None (no authentication) nothing is checked.
    """
    owners, _ = client.get_acls(path)
    if acl is not None and [(entry.perms, entry.id) for entry in owners] != [
        (entry.perms, entry.id) for entry in acl
    ]:
        raise BadConfiguration(
            f"{path} in ZooKeeper can be changed by other users",
            remedy="give another path in --ha, or remove this path in ZooKeeper if nothing uses it",
        )


def close(client: KazooClient) -> None:
    """End the session, so that its ephemeral nodes disappear at once."""
    client.stop()
    client.close()
