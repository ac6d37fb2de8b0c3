"""What a token looks like, and whether it proves its name.

A token is `mgpu_ID_SECRET`. The secret is 32 bytes of chance, so a fast salted hash keeps it: nobody guesses those.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.token import Token

PREFIX: Final = "mgpu_"  # by which those who look for leaked secrets may know one
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16
_FORM: Final = re.compile(r"mgpu_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
#: What looks like the secret of a token, whole or cut, or like a signed one (JWT, RFC 7519).
_SECRETS: Final = re.compile(r"(mgpu_(?:[0-9a-f]{12}_)?)[A-Za-z0-9_-]+|\beyJ[A-Za-z0-9_-]{8,}[A-Za-z0-9._-]*")
#: Compared with where there is no such token, so that this takes as long.
_NO_DIGEST: Final = "0" * 64


def text_of(id: str, secret: str) -> str:
    """What its owner is shown, once."""
    return f"{PREFIX}{id}_{secret}"


def parts_of(text: str) -> tuple[str, str] | None:
    """The id and the secret of what somebody sends; None: it has not the form of a token."""
    match = _FORM.fullmatch(text)
    return (match[1], match[2]) if match else None


def redacted(text: str) -> str:
    """A text that others may read, as one in which somebody put a token where its id belongs."""
    return _SECRETS.sub(lambda match: f"{match[1] or ''}***", text)


def digest_of(salt: str, secret: str) -> str:
    """What is kept of a secret, hexadecimal. `salt`: hexadecimal."""
    return sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


def is_proved(token: Token | None, secret: str, now: float) -> bool:
    """Whether a secret is that of a token which has not expired; None: there is no such token."""
    salt, digest = (token.salt, token.digest) if token else ("", _NO_DIGEST)
    right = compare_digest(digest_of(salt, secret), digest)
    return right and token is not None and bool(token.digest) and now < token.expires_at


def ended_with(kept: Mapping[str, Token], ids: Iterable[str]) -> list[str]:
    """The ids of tokens that end when these do: those that were made with them, too."""
    ended = list(dict.fromkeys(ids))
    for id in ended:  # grows meanwhile
        ended += [each.id for each in kept.values() if each.made_with == id and each.id not in ended]
    return ended


def caller_of(token: Token, address: str) -> Caller:
    """Who sends a token that is proved."""
    return Caller(
        name=token.name,
        groups=frozenset(token.groups),
        proof=Proof.TOKEN,
        address=address,
        narrowing=token.narrowing,
        until=token.expires_at,
        proof_id=token.id,
    )
