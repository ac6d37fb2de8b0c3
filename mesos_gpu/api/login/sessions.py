"""Sessions of browsers, which cookies stand for. They are in memory only, so that a restart ends them."""

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
SECURE_COOKIE: Final = "__Host-mesos_gpu"  # RFC 6265bis, section 4.1.3.2: for this host only, over TLS only
WHOLE_S: Final = 12 * 3600.0
IDLE_S: Final = 3600.0
MAX: Final = 10_000
MAX_OF_NAME: Final = 50
_BYTES: Final = 32
_MAX_LENGTH: Final = 64  # characters of a cookie value; longer ones are cut
_AGAIN: Final = "log in again"


@dataclass(slots=True)
class Session:
    """A session of a browser. Times: seconds since the epoch."""

    id: str  # for logs and audit; the cookie cannot be derived from it
    caller: Caller  # as proved when the session began
    csrf: str = field(repr=False)  # token that changing requests send besides the cookie
    begun_at: float
    used_at: float

    def until(self) -> float:
        """Return when the session ends if it is never idle."""
        whole = self.begun_at + WHOLE_S
        return whole if self.caller.until is None else min(whole, self.caller.until)


class Sessions:
    """All sessions of a scheduler. Used on the event loop only.

    Args:
        stands: Function that returns whether the proof that began a session is still valid.
    """

    def __init__(self, stands: Callable[[Caller], bool]) -> None:
        self._stands = stands
        # By a hash of the cookie; the latest used is last.
        self._each: OrderedDict[str, Session] = OrderedDict()
        self._keys: dict[str, str] = {}  # keys of `_each` by session id
        self._ended: OrderedDict[str, Session] = OrderedDict()  # recognized if their cookies come again

    def begin(self, caller: Caller, now: float) -> tuple[str, Session]:
        """Begin a session; return a new cookie and the session."""
        cookie = secrets.token_urlsafe(_BYTES)
        key = _hash(cookie)
        session = Session(key[:32], caller, secrets.token_urlsafe(_BYTES), now, now)
        own = [key for key, session in self._each.items() if session.caller.name == caller.name]
        for old in own[: max(0, len(own) - MAX_OF_NAME + 1)]:
            self._end(old)
        while len(self._each) >= MAX:
            self._end(next(iter(self._each)))
        self._each[key], self._keys[session.id] = session, key
        return cookie, session

    def find(self, cookie: str, now: float) -> Session:
        """Return the session of a cookie, and note its use.

        Raises:
            WrongProof: There is no such session, or it has ended.
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
        """End the session of a cookie."""
        self._end(_hash(cookie[: _MAX_LENGTH + 1]))

    def is_there(self, session_id: str, now: float) -> bool:
        """Return whether the session with an id lasts; this does not count as a use."""
        session = self.by_id(session_id)
        return session is not None and now < session.until() and self._stands(session.caller)

    def by_id(self, session_id: str) -> Session | None:
        """Return the session with an id; None if it has ended."""
        return self._each.get(self._keys.get(session_id, ""))

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._each)

    def _end(self, key: str) -> None:
        session = self._each.pop(key, None)
        if session is not None:
            del self._keys[session.id]
            self._ended[key] = session
            if len(self._ended) > MAX:
                self._ended.popitem(last=False)


def caller_by(session: Session, address: str) -> Caller:
    """Return the caller of a request of a session."""
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
    """Return whether a request shows its session's CSRF token, which only pages of this server can read."""
    return hmac.compare_digest(session.csrf.encode(), shown.encode("utf-8", "replace"))


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
