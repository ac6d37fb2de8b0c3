"""Sessions of browsers: what a cookie stands for. Kept in memory alone: a scheduler that is started again asks anew."""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.model.access.caller import Caller, Proof

COOKIE: Final = "mesos_gpu"
SECURE_COOKIE: Final = (
    "__Host-mesos_gpu"  # RFC 6265bis, section 4.1.3.2: of this host alone, and by TLS alone
)
WHOLE_S: Final = 12 * 3600.0
IDLE_S: Final = 3600.0
MAX: Final = 10_000
MAX_OF_NAME: Final = 50
_BYTES: Final = 32
_MAX_LENGTH: Final = 64  # characters of a cookie that is looked at
_AGAIN: Final = "log in again"


@dataclass(slots=True)
class Session:
    """A session of a browser. Times: seconds since the epoch."""

    id: str  # of the log and of the audit; the cookie cannot be worked out from it
    caller: Caller  # as it was proved when it began
    csrf: str = field(repr=False)  # what requests that change something show beside the cookie
    begun_at: float
    used_at: float

    def until(self) -> float:
        """When it ends, if it is used all the time."""
        whole = self.begun_at + WHOLE_S
        return whole if self.caller.until is None else min(whole, self.caller.until)


class Sessions:
    """All of a scheduler. Used on the event loop only."""

    def __init__(self, stands: Callable[[Caller], bool]) -> None:
        """`stands`: whether what began a session still proves its name."""
        self._stands = stands
        self._each: OrderedDict[str, Session] = (
            OrderedDict()
        )  # by a hash of the cookie; what is used last is last
        self._keys: dict[str, str] = {}  # by the id of a session
        self._ended: OrderedDict[str, Session] = OrderedDict()  # so that a cookie that is shown again is told

    def begin(self, caller: Caller, now: float) -> tuple[str, Session]:
        """A new one, and its cookie: never one that the browser had before."""
        cookie = secrets.token_urlsafe(_BYTES)
        key = _hash(cookie)
        session = Session(key[:32], caller, secrets.token_urlsafe(_BYTES), now, now)
        own = [each for each, kept in self._each.items() if kept.caller.name == caller.name]
        for old in own[: max(0, len(own) - MAX_OF_NAME + 1)]:
            self._end(old)
        while len(self._each) >= MAX:
            self._end(next(iter(self._each)))
        self._each[key], self._keys[session.id] = session, key
        return cookie, session

    def find(self, cookie: str, now: float) -> Session:
        """The session of a cookie; it is used now.

        Raises:
            WrongProof: There is none, or it has ended.
        """
        key = _hash(cookie[: _MAX_LENGTH + 1])
        session = self._each.get(key)
        if session is None:
            ended = self._ended.get(key)
            name = ended.caller.name if ended else ""
            what = "this session has ended" if ended else "there is no such session"
            raise WrongProof(what, name, guessed=ended is None, remedy=_AGAIN)
        if now >= session.until() or now - session.used_at > IDLE_S or not self._stands(session.caller):
            self._end(key)
            raise WrongProof("this session has ended", session.caller.name, guessed=False, remedy=_AGAIN)
        session.used_at = now
        self._each.move_to_end(key)
        return session

    def end(self, cookie: str) -> None:
        """Forget one: its cookie proves nothing any more."""
        self._end(_hash(cookie[: _MAX_LENGTH + 1]))

    def is_there(self, session_id: str, now: float) -> bool:
        """Whether one goes on, by the id that its callers have; it is not used by that."""
        session = self.by_id(session_id)
        return session is not None and now < session.until() and self._stands(session.caller)

    def by_id(self, session_id: str) -> Session | None:
        """The session of an id that callers have; None: it has ended."""
        return self._each.get(self._keys.get(session_id, ""))

    def __len__(self) -> int:
        """How many go on."""
        return len(self._each)

    def _end(self, key: str) -> None:
        session = self._each.pop(key, None)
        if session is not None:
            del self._keys[session.id]
            self._ended[key] = session
            if len(self._ended) > MAX:
                self._ended.popitem(last=False)


def caller_by(session: Session, address: str) -> Caller:
    """Who sends a request of a session."""
    began = session.caller
    return replace(
        began,
        address=address,
        until=session.until(),
        session=True,
        proof_id=session.id,
        session_since=session.begun_at,
        began_with=began.proof_id if began.proof is Proof.TOKEN else "",
    )


def is_token_of(session: Session, shown: str) -> bool:
    """Whether a request that changes something comes from a page of ours: no other can read what it shows."""
    return hmac.compare_digest(session.csrf.encode(), shown.encode("utf-8", "replace"))


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
