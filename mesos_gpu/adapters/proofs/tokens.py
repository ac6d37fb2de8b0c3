"""Authentication by tokens of this scheduler, as `Authorization: Bearer mgpu_…`, or as the password of HTTP basic.

Marathon's own client and others support HTTP basic only: the name before the token is then empty, or `token`.
"""

from collections.abc import Callable
from typing import Final

from mesos_gpu.access.proofs import WrongProof, basic
from mesos_gpu.access.tokens import PREFIX, caller_of, is_proved, parts_of
from mesos_gpu.adapters.proofs.prover import Shown
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.token import Token

_NAMES: Final = ("", "token")  # user names before a token in HTTP basic

Find = Callable[[str], Token | None]
NoteUse = Callable[[str, str], None]  # called with a token's id and the client's address


class Tokens:
    """`Prover` for tokens.

    Args:
        find: Function that returns a token by its id; None for one that was never issued, or is revoked.
        note_use: Callback for each use. Both are called on the event loop.
    """

    kind = Proof.TOKEN
    challenge = 'Bearer realm="mesos_gpu"'

    def __init__(self, find: Find, note_use: NoteUse) -> None:
        self._find, self._note_use = find, note_use

    async def identify(self, shown: Shown) -> Caller | None:
        """Identify the caller by its token, as for `Prover`."""
        text = _shown_token(shown)
        return None if text is None else self.caller_of(text, shown.address, shown.now)

    def caller_of(self, text: str, address: str, now: float) -> Caller:
        """Return the caller that a token proves.

        Raises:
            WrongProof: The token is invalid or has expired.
        """
        token_id, secret = parts_of(text) or ("", "")
        token = self._find(token_id)
        if token is not None and is_proved(token, secret, now):
            self._note_use(token.id, address)
            return caller_of(token, address)
        if token is None:
            is_proved(None, secret, now)  # an unknown token takes as long as a wrong one
        elif is_proved(token, secret, token.created_at):
            raise WrongProof("the token has expired", token.name, guessed=False, remedy="create a new one")
        raise WrongProof("this token is not one of this scheduler's, or it was revoked")

    def stands(self, caller: Caller) -> bool:
        """Return whether the token still exists, and is for that name."""
        token = self._find(caller.proof_id)
        return token is not None and token.name == caller.name


def _shown_token(shown: Shown) -> str | None:
    """Return the token of a request; None if it has none, or one of another kind."""
    header = shown.authorization
    if header is None:
        return None
    if header.scheme == "bearer":
        return header.value if header.value.startswith(PREFIX) else None
    if header.scheme != "basic":
        return None
    credentials = basic(header.value)
    if credentials.name.startswith(PREFIX):  # sent by `curl -u TOKEN:`
        return credentials.name
    return (
        credentials.password
        if credentials.name in _NAMES and credentials.password.startswith(PREFIX)
        else None
    )
