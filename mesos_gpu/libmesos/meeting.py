"""The node in ZooKeeper below which masters meet: nobody but they may write there.

Mesos makes it by whoever comes first. If that is an agent, which has no password, then everybody could name a master.
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
AGAIN_S: Final = 1.0  # between two looks
TOLD_S: Final = 60.0  # between two lines that say what is waited for


def own(where: ZooKeeper, note: Callable[[str], None]) -> None:
    """Make the node before anybody else does, or take it from everybody; wait for that until ZooKeeper answers.

    Args:
        where: As of --zk, with credentials.
        note: Is told what is waited for, or was changed.

    Raises:
        BadConfiguration: It belongs to somebody with other credentials.
    """
    user, _, password = where.credentials.partition(":")
    acl = [make_acl("world", "anyone", read=True), make_digest_acl(user, password, all=True)]
    told_at = -TOLD_S
    while True:
        try:
            if _asked(where, lambda client: _owned(client, where.path, acl, note)):
                return
        except (KazooException, KazooTimeoutError, OSError) as error:
            if time.monotonic() - told_at >= TOLD_S:
                told_at = time.monotonic()
                note(f"waiting for ZooKeeper at {where.servers} to answer: {error!r}")
        time.sleep(AGAIN_S)


def _open_to(acls: Sequence[Any], acl: Sequence[Any]) -> bool:
    """Whether somebody beyond `acl` may do more than read."""
    return any(each.perms & ~Permissions.READ and each not in acl for each in acls)


def _owned(client: KazooClient, path: str, acl: list[Any], note: Callable[[str], None]) -> bool:
    try:
        if client.exists(path) is None:
            client.ensure_path(path.rpartition("/")[0] or "/", acl)
            client.create(path, b"", acl)
        if _open_to(client.get_acls(path)[0], acl):
            client.set_acls(path, acl)
            note(f"{path} in ZooKeeper was open to others: from now on masters alone write there")
    except NodeExistsError:  # another master was faster, or an agent
        return False
    except NoAuthError:
        raise BadConfiguration(
            f"{path} in ZooKeeper is not open to this master",
            remedy="give --zk the user and password that the other masters have, or another path",
        ) from None
    return True


def _asked(where: ZooKeeper, done: Callable[[KazooClient], bool]) -> bool:
    proof = [("digest", where.credentials)] if where.credentials else []
    client = KazooClient(where.servers, timeout=ANSWER_S, auth_data=proof)
    try:
        client.start(timeout=ANSWER_S)
        return done(client)
    finally:
        client.stop()
        client.close()
