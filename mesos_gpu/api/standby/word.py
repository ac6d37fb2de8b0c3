"""Signed statements of a standby about a request that it forwards: its address, and callers proved by its connection.

Proofs such as a certificate or a Unix socket cannot be forwarded. A statement is signed with a key that the schedulers
of one cluster share, and is valid for one method and target, for one run of one leader, and once: each has a number,
and the leader remembers the latest ones.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from mesos_gpu.model.access.caller import Caller

HEADER: Final = "mesos-gpu-standby-word"
_PURPOSE: Final = b"mesos_gpu: a standby's word"
_WINDOW: Final = 4096  # numbers that may arrive out of order
_MAX_LENGTH: Final = 8192  # of the header


class Word(msgspec.Struct, frozen=True):
    """The signed statement.

    Attributes:
        to: Id of the leader's run for which it is valid.
        by: Id of the standby's run.
        number: Number from 1, used once.
        method: Method of the request.
        target: Path and query as they are sent.
        address: Client address of the request; "" for a Unix socket.
        port: Client port of the request.
        callers: Callers that the connection proves.
    """

    to: str
    by: str
    number: int
    method: str
    target: str
    address: str
    port: int
    callers: tuple[Caller, ...] = ()


class Signer:
    """Signs statements of a standby.

    Args:
        key: Function that returns the key that all schedulers of the cluster share.
    """

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key, self._by = key, secrets.token_hex(16)
        self._lock, self._number = threading.Lock(), 0

    def sign(
        self, to: str, method: str, target: str, address: str, port: int, callers: tuple[Caller, ...]
    ) -> str:
        """Return the value of the header; the arguments are the attributes of `Word`."""
        with self._lock:
            self._number += 1
            number = self._number
        word = Word(to, self._by, number, method, target, address, port, callers)
        payload = base64.urlsafe_b64encode(msgspec.json.encode(word))
        return f"{payload.decode()}.{_mac(_derived(self._key()), payload)}"


class Verifier:
    """Verifies statements at the leader.

    Args:
        key: Key that all schedulers of the cluster share.
        run: Id of this leader's run.
    """

    def __init__(self, key: bytes, run: str) -> None:
        self._key, self._run = _derived(key), run
        self._seen: dict[str, tuple[int, set[int]]] = {}  # the latest number and recent ones, by standby run

    def read(self, text: str, method: str, target: str) -> Word | None:
        """Return the statement in a header; None if it is not valid. To be called on one thread only."""
        payload, _, mac = text.partition(".")
        if len(text) > _MAX_LENGTH or not hmac.compare_digest(
            mac.encode("utf-8", "replace"), _mac(self._key, payload.encode("utf-8", "replace")).encode()
        ):
            return None
        try:
            word = msgspec.json.decode(base64.urlsafe_b64decode(payload), type=Word)
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            return None
        is_for_this = (word.to, word.method, word.target) == (self._run, method, target)
        return word if is_for_this and self._is_new(word) else None

    def _is_new(self, word: Word) -> bool:
        """Return whether a statement's number was not used before, and remember it."""
        latest, near = self._seen.get(word.by, (0, set()))
        if word.number in near or word.number <= latest - _WINDOW:
            return False
        latest = max(latest, word.number)
        near.add(word.number)
        if len(near) > 2 * _WINDOW:
            near = {number for number in near if number > latest - _WINDOW}
        self._seen[word.by] = latest, near
        return True


def _derived(key: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE, hashlib.sha256)


def _mac(key: bytes, payload: bytes) -> str:
    return hmac.new(key, payload, hashlib.sha256).hexdigest()
