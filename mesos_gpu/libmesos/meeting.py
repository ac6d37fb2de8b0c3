"""ZooKeeper node below which masters meet: only masters may write there.

Mesos lets the first client create it. If that is an agent, which has no password, any client could register a master.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import Permissions, make_acl, make_digest_acl

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.libmesos.program import ZooKeeper

ANSWER_S: Final = 5.0
AGAIN_S: Final = 1.0  # between two attempts
TOLD_S: Final = 60.0  # between two messages about waiting


def own(where: ZooKeeper, note: Callable[[str], None]) -> None:
    """Create the node before other clients do, or restrict it to masters; retry until ZooKeeper answers.

    Args:
        where: ZooKeeper of --zk, with credentials.
        note: Callback for messages about waiting and changes.

    Raises:
        BadConfiguration: The node belongs to a client with other credentials.
    """
    user, _, password = where.credentials.partition(":")
    acl = [make_acl("world", "anyone", read=True), make_digest_acl(user, password, all=True)]
    noted_at = -TOLD_S
    while True:
        try:
            if _with_client(where, lambda client: _take_ownership(client, where.path, acl, note)):
                return
        except (KazooException, KazooTimeoutError, OSError) as error:
            if time.monotonic() - noted_at >= TOLD_S:
                noted_at = time.monotonic()
                note(f"waiting for ZooKeeper at {where.servers} to answer: {error!r}")
        time.sleep(AGAIN_S)


def _is_open(acls: Sequence[Any], acl: Sequence[Any]) -> bool:
    """Return whether a client beyond `acl` may do more than read."""
    return any(entry.perms & ~Permissions.READ and entry not in acl for entry in acls)


def _take_ownership(client: KazooClient, path: str, acl: list[Any], note: Callable[[str], None]) -> bool:
    """Create or restrict the node. Return False if another client created it at that moment."""
    try:
        if client.exists(path) is None:
            client.ensure_path(path.rpartition("/")[0] or "/", acl)
            client.create(path, b"", acl)
        if _is_open(client.get_acls(path)[0], acl):
            client.set_acls(path, acl)
            note(f"{path} in ZooKeeper was open to other clients: only masters may write there from now on")
    except NodeExistsError:  # another master or an agent created it meanwhile
        return False
    except NoAuthError:
        raise BadConfiguration(
            f"{path} in ZooKeeper is not open to this master",
            remedy="give --zk the user and password that the other masters have, or another path",
        ) from None
    return True


def _with_client(where: ZooKeeper, done: Callable[[KazooClient], bool]) -> bool:
    proof = [("digest", where.credentials)] if where.credentials else []
    client = KazooClient(where.servers, timeout=ANSWER_S, auth_data=proof)
    try:
        client.start(timeout=ANSWER_S)
        return done(client)
    finally:
        client.stop()
        client.close()
