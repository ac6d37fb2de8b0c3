"""Replication of code archives that jobs and apps need, from the leader to a standby that may lead next."""

import contextlib
import http.client
import logging
import ssl
import threading
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import quote, urlsplit

from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.standby.passing import Leader
from mesos_gpu.api.v1.files.uploads import OF_STANDBY, PASS
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.mesos.seal import pass_for, secret_for

LOOK_S: Final = 5.0
ANSWER_S: Final = 10.0
_PIECE: Final = 1 << 18  # bytes
_ENDS_S: Final = 1.0
logger = logging.getLogger("mesos_gpu.scheduler")
Needed = Callable[[], Collection[tuple[str, str]]]


class Archives:
    """Background thread that fetches needed archives which are missing here.

    Args:
        store: Archive store of this scheduler.
        needed: Function that returns (owner, digest) of all archives in use.
        leader: Function that returns the leader to fetch from; None without a leader.
        key: Function that returns the key that all schedulers of the cluster share.
        tls: TLS context to verify the leader; None for plain HTTP.
    """

    def __init__(
        self,
        store: UploadStore,
        needed: Needed,
        leader: Callable[[], Leader | None],
        key: Callable[[], bytes],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._store, self._needed, self._leader, self._key, self._tls = store, needed, leader, key, tls
        self._stop = threading.Event()
        self._failed = set[str]()  # digests whose fetch failed and was logged once
        self._thread = threading.Thread(target=self._run, name="archives", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop fetching; a fetch in progress ends after its current block."""
        self._stop.set()
        self._thread.join(_ENDS_S)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            leader = self._leader()
            if leader is not None and self._key():
                self.look(leader)

    def look(self, leader: Leader) -> None:
        """Fetch from the leader all archives that are needed and missing here."""
        for owner, digest in self._needed():
            try:
                if not self._stop.is_set() and not self._is_here(owner, digest):
                    self._fetch(leader, owner, digest)
                    self._failed.discard(digest)
            except (OSError, http.client.HTTPException, ValueError, MesosGpuError) as error:
                if digest not in self._failed:
                    logger.warning(
                        "archive %s cannot be fetched from the leader, and is tried again: %s", digest, error
                    )
                self._failed.add(digest)

    def _is_here(self, owner: str, digest: str) -> bool:
        there = self._store.find(owner, digest)
        return there is not None and there.complete

    def _fetch(self, leader: Leader, owner: str, digest: str) -> None:
        """Fetch an archive from the leader into the store, continuing a partial one."""
        path = f"/v1/uploads/{digest}/archive"
        target = f"{path}?owner={quote(owner, safe='')}"
        shown = pass_for(secret_for(self._key(), OF_STANDBY), f"GET {path} {owner}")
        with contextlib.closing(self._connected(leader.url)) as connection:
            connection.request("GET", target, headers={PASS: shown})
            answer = connection.getresponse()
            if answer.status != 200:
                raise http.client.HTTPException(f"it answers {answer.status}")
            size = int(answer.headers["Content-Length"])
            there = self._store.find(owner, digest)
            at, skipped = 0, there.received if there is not None else 0
            while not self._stop.is_set() and (piece := answer.read(_PIECE)):
                new = piece[max(skipped - at, 0) :]
                if new:
                    self._store.put(owner, digest, at + len(piece) - len(new), size, new)
                at += len(piece)

    def _connected(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_S, context=self._tls)
        return http.client.HTTPConnection(host, parts.port, timeout=ANSWER_S)
