"""Authentication by Unix socket: the kernel identifies the connecting account of this host and its groups."""

import asyncio
import logging
import os
import time
from collections.abc import Container
from typing import Final

from mesos_gpu.access.proofs import may_be_name
from mesos_gpu.adapters.accounts import account_of_uid
from mesos_gpu.adapters.proofs.peers import LocalPeer, local_peer_in
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.adapters.proofs.sparse import SparseLog
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.jobs.users import Account

FRESH_S: Final = 30.0  # for which a looked-up account is cached
MAX_KEPT: Final = 1000
logger = logging.getLogger("mesos_gpu.login")


class LocalCallers:
    """`Prover` for callers on a Unix socket. Tasks and proxies get no name by it; they need another proof.

    Args:
        proxies: Proxies on this host, which speak for others.
        pool: Uids that only tasks have.
    """

    kind = Proof.SOCKET
    challenge = ""

    def __init__(self, proxies: Proxies | None = None, pool: Container[int] = ()) -> None:
        self._proxies, self._pool = proxies or Proxies(), pool
        self._log = SparseLog(logger, "connections without a name")
        self._accounts: dict[int, tuple[float, Account | None]] = {}

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by its account, as for `Prover`."""
        peer = local_peer_in(shown.extensions)
        if peer is None or self._proxies.are_behind("", shown.extensions):
            return None
        refused = peer.refused or ("its uid is reserved for tasks" if peer.uid in self._pool else "")
        if refused:
            self._log.warn(
                "process %d of uid %d is not identified by the socket: %s", peer.pid, peer.uid, refused
            )
            return None
        account = await self._account_of(peer)
        if account is None or not may_be_name(account.name):
            self._log.warn("uid %d is not identified by the socket: there is no such account", peer.uid)
            return None
        return Caller(
            name=account.name,
            groups=account.groups,
            proof=Proof.SOCKET,
            local_admin=peer.uid in (0, os.geteuid()),
            proof_id=f"uid {peer.uid}",
        )

    def stands(self, caller: Caller) -> bool:
        """Return whether the caller was identified by a socket: its process cannot change during a connection."""
        return caller.proof is Proof.SOCKET

    async def _account_of(self, peer: LocalPeer) -> Account | None:
        at, account = self._accounts.get(peer.uid, (-FRESH_S, None))
        now = time.monotonic()
        if now - at >= FRESH_S:
            account = await asyncio.to_thread(account_of_uid, peer.uid)  # which may ask a directory server
            if len(self._accounts) >= MAX_KEPT:
                self._accounts.clear()
            self._accounts[peer.uid] = (now, account)
        return account
