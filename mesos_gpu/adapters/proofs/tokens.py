"""Tokens that this scheduler issues, as `Authorization: Bearer mgpu_…`, or as the password of HTTP basic.

Marathon's own client and others know HTTP basic only: the name before the token is left empty, or `token`.
"""

from collections.abc import Callable
from typing import Final

from mesos_gpu.access.proofs import WrongProof, basic
from mesos_gpu.access.tokens import PREFIX, caller_of, is_proved, parts_of
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.token import Token

_NAMES: Final = ("", "token")  # before a token in HTTP basic

Find = Callable[[str], Token | None]
NoteUse = Callable[[str, str], None]  # a token's id, and from which address


class Tokens:
    """The `Prover` of tokens."""

    kind = Proof.TOKEN
    challenge = 'Bearer realm="mesos_gpu"'

    def __init__(self, find: Find, note_use: NoteUse) -> None:
        """Take tokens that `find` knows by their ids (None: never made, or revoked); `note_use` is told of each use.
        Both are called on the event loop."""
        self._find, self._note_use = find, note_use

    async def identify(self, shown: Shown) -> Caller | None:
        """Do as `Prover` says."""
        text = _shown_token(shown)
        return None if text is None else self.caller_of(text, shown.address, shown.now)

    def caller_of(self, text: str, address: str, now: float) -> Caller:
        """Whom a token proves.

        Raises:
            WrongProof: It proves nothing, or nothing any more.
        """
        token_id, secret = parts_of(text) or ("", "")
        token = self._find(token_id)
        if token is not None and is_proved(token, secret, now):
            self._note_use(token.id, address)
            return caller_of(token, address)
        if token is None:
            is_proved(None, secret, now)  # one that is not there takes as long as a wrong one
        elif is_proved(token, secret, token.created_at):
            raise WrongProof("the token has expired", token.name, guessed=False, remedy="ask for a new one")
        raise WrongProof("this token is not one of this scheduler's, or it was revoked")

    def stands(self, caller: Caller) -> bool:
        """Do as `Prover` says."""
        token = self._find(caller.proof_id)
        return token is not None and token.name == caller.name


def _shown_token(shown: Shown) -> str | None:
    """The token of a request; None: it has none, or one of another kind."""
    header = shown.authorization
    if header is None:
        return None
    if header.scheme == "bearer":
        return header.value if header.value.startswith(PREFIX) else None
    if header.scheme != "basic":
        return None
    given = basic(header.value)
    if given.name.startswith(PREFIX):  # as `curl -u TOKEN:` sends it
        return given.name
    return given.password if given.name in _NAMES and given.password.startswith(PREFIX) else None
