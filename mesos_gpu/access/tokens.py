"""Form of access tokens, and verification of their secrets.

A token is `mgpu_ID_SECRET`. The secret is 32 random bytes, which cannot be guessed, so a fast salted hash is enough.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.token import Token

PREFIX: Final = "mgpu_"  # recognizable for scanners that look for leaked secrets
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16
_FORM: Final = re.compile(r"mgpu_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
#: Texts that look like the secret of an access token, whole or cut, or like a signed token (JWT, RFC 7519).
_SECRETS: Final = re.compile(r"(mgpu_(?:[0-9a-f]{12}_)?)[A-Za-z0-9_-]+|\beyJ[A-Za-z0-9_-]{8,}[A-Za-z0-9._-]*")
#: Digest to compare with if a token does not exist, so that the check takes equally long.
_NO_DIGEST: Final = "0" * 64


def text_of(id: str, secret: str) -> str:
    """Return the text of a token, which its owner is shown once."""
    return f"{PREFIX}{id}_{secret}"


def parts_of(text: str) -> tuple[str, str] | None:
    """Return id and secret of the text of a token; None if it has another form."""
    match = _FORM.fullmatch(text)
    return (match[1], match[2]) if match else None


def redacted(text: str) -> str:
    """Return a text with secrets of tokens masked, as users may put a token in the place of its id."""
    return _SECRETS.sub(lambda match: f"{match[1] or ''}***", text)


def digest_of(salt: str, secret: str) -> str:
    """Return the stored hash of a secret, hexadecimal. `salt`: hexadecimal."""
    return sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


def is_proved(token: Token | None, secret: str, now: float) -> bool:
    """Return whether a secret is that of a token that has not expired; False for None, an unknown token."""
    salt, digest = (token.salt, token.digest) if token else ("", _NO_DIGEST)
    right = compare_digest(digest_of(salt, secret), digest)
    return right and token is not None and bool(token.digest) and now < token.expires_at


def ended_with(kept: Mapping[str, Token], ids: Iterable[str]) -> list[str]:
    """Return the ids of tokens that end when some end, with all tokens that were created with them."""
    ended = list(dict.fromkeys(ids))
    for id in ended:  # the list grows in the loop
        ended += [token.id for token in kept.values() if token.made_with == id and token.id not in ended]
    return ended


def caller_of(token: Token, address: str) -> Caller:
    """Return the caller who sends a verified token."""
    return Caller(
        name=token.name,
        groups=frozenset(token.groups),
        proof=Proof.TOKEN,
        address=address,
        narrowing=token.narrowing,
        until=token.expires_at,
        proof_id=token.id,
    )
