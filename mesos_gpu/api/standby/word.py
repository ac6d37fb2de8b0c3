"""A standby's word to the leader for a request that it passes on: where it came from, and who was proved to send it by
what cannot be passed on, as a certificate or a Unix socket.

It is signed by a key that the schedulers of one place share, holds for one method and target, for one run of one
leader, and once: each has a number, and the leader keeps the latest.
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
_WINDOW: Final = 4096  # numbers that may come in another order
_MAX_LENGTH: Final = 8192  # of a header


class Word(msgspec.Struct, frozen=True):
    """What is signed.

    Attributes:
        to: The run of the leader that it is for.
        by: The run of the standby.
        number: From 1, each once.
        method: Of the request.
        target: Path and query, as they are sent.
        address: Where the request came from; "": a Unix socket.
        port: Likewise.
        callers: Who was proved to send it.
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
    """A standby's."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        """`key`: that all schedulers of a place have."""
        self._key, self._by = key, secrets.token_hex(16)
        self._lock, self._number = threading.Lock(), 0

    def sign(
        self, to: str, method: str, target: str, address: str, port: int, callers: tuple[Caller, ...]
    ) -> str:
        """The header's value; the arguments are those of `Word`."""
        with self._lock:
            self._number += 1
            number = self._number
        word = Word(to, self._by, number, method, target, address, port, callers)
        payload = base64.urlsafe_b64encode(msgspec.json.encode(word))
        return f"{payload.decode()}.{_mac(_derived(self._key()), payload)}"


class Verifier:
    """The leader's."""

    def __init__(self, key: bytes, run: str) -> None:
        """`run`: this leader's."""
        self._key, self._run = _derived(key), run
        self._seen: dict[str, tuple[int, set[int]]] = {}  # by standby: the latest number, and those near it

    def read(self, text: str, method: str, target: str) -> Word | None:
        """What a header says; None: it is not to be believed. Only on one thread."""
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
        latest, near = self._seen.get(word.by, (0, set()))
        if word.number in near or word.number <= latest - _WINDOW:
            return False
        latest = max(latest, word.number)
        near.add(word.number)
        if len(near) > 2 * _WINDOW:
            near = {each for each in near if each > latest - _WINDOW}
        self._seen[word.by] = latest, near
        return True


def _derived(key: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE, hashlib.sha256)


def _mac(key: bytes, payload: bytes) -> str:
    return hmac.new(key, payload, hashlib.sha256).hexdigest()
