"""Tokens that this scheduler issues, as `Authorization: Bearer mgt_…`, or as the password of HTTP basic.

Marathon's own client and others know HTTP basic only: the name before the token is left empty, or `token`.
"""

import secrets
from collections.abc import Callable
from typing import Final

from mesos_gpu.access import token_text
from mesos_gpu.access.proofs import WrongProof, basic
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.token import Token

COALESCE_S: Final = 60.0  # of a token's use from one address, so much is one
_NAMES: Final = ("", "token")  # before a token in HTTP basic
_SALT_BYTES: Final = 16
_NOWHERE: Final = Token(
    "0" * 16, "", salt="00" * _SALT_BYTES, digest="00" * 32, created_at=0.0, expires_at=0.0
)

Find = Callable[[str], Token | None]
NoteUse = Callable[
    [str, float, str], None
]  # a token's id, when (seconds since the epoch), and from which address


def new() -> tuple[token_text.TokenText, str, str]:
    """A token's text, to be shown once, and salt and digest of it, to be kept."""
    secret = secrets.token_urlsafe(token_text.SECRET_BYTES)
    text = token_text.TokenText(secrets.token_hex(token_text.ID_BYTES), secret)
    salt = secrets.token_hex(_SALT_BYTES)
    return text, salt, token_text.digest(salt, secret)


def _unnoted(_token_id: str, _at: float, _address: str) -> None:
    """Keep nothing of a use."""


class Tokens:
    """The prover of tokens; as of `Prover`."""

    kind = Proof.TOKEN
    challenge = 'Bearer realm="mesos_gpu"'

    def __init__(self, find: Find, note_use: NoteUse = _unnoted) -> None:
        """Take tokens that `find` knows by their ids (None: never made, or revoked); called on the event loop, as
        `note_use` is, at most once a minute for each token and address."""
        self._find, self._note_use = find, note_use
        self._noted: dict[str, tuple[float, str]] = {}

    async def identify(self, shown: Shown) -> Caller | None:
        """As of `Prover`."""
        text = _shown_token(shown)
        return None if text is None else self.caller_of(text, shown.address, shown.now)

    def caller_of(self, text: str, address: str, now: float) -> Caller:
        """Whom a token proves.

        Raises:
            WrongProof: It proves nothing, or nothing any more.
        """
        parsed = token_text.parse(text)
        token = self._find(parsed.id) if parsed else None
        # A token that is not there takes as long as a wrong one.
        right = token_text.is_of(token or _NOWHERE, parsed.secret if parsed else "")
        if parsed is None or token is None or not right:
            raise WrongProof("this token is not one of this scheduler's, or it was revoked")
        if now >= token.expires_at:
            raise WrongProof("the token has expired", token.name, guessed=False, remedy="ask for a new one")
        self._note(token.id, now, address)
        return Caller(
            name=token.name,
            groups=frozenset(token.groups),
            proof=Proof.TOKEN,
            address=address,
            narrowing=token.narrowing,
            until=token.expires_at,
            proof_id=token.id,
        )

    def stands(self, caller: Caller) -> bool:
        """As of `Prover`."""
        token = self._find(caller.proof_id)
        return token is not None and token.name == caller.name

    def _note(self, token_id: str, now: float, address: str) -> None:
        at, from_where = self._noted.get(token_id, (0.0, ""))
        if now - at >= COALESCE_S or from_where != address:
            if len(self._noted) >= 10_000:
                self._noted.pop(next(iter(self._noted)))
            self._noted[token_id] = (now, address)
            self._note_use(token_id, now, address)


def _shown_token(shown: Shown) -> str | None:
    """The token of a request; None: it has none, or one of another kind."""
    header = shown.authorization
    if header is None:
        return None
    if header.scheme == "bearer":
        return header.value if token_text.looks_like_one(header.value) else None
    if header.scheme != "basic":
        return None
    given = basic(header.value)
    if token_text.looks_like_one(given.name):  # as `curl -u TOKEN:` sends it
        return given.name
    if given.name in _NAMES and token_text.looks_like_one(given.password):
        return given.password
    return None
