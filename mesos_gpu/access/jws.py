"""Headers of tokens signed by an issuer (RFC 7515), read before the token is verified; pure functions."""

from base64 import urlsafe_b64decode
from binascii import Error
from dataclasses import dataclass
from typing import Final

import msgspec

from mesos_gpu.access.proofs import WrongProof

#: Accepted algorithms: neither `none`, nor those whose secret would be a public key (HS256 and the like).
#: Ed25519 is the name in RFC 9864 for EdDSA with that curve, the only curve that is accepted.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
MAX_LENGTH: Final = 16_384  # characters of a token
MAX_KEY_ID: Final = 256
#: Media types (`typ`) of identity tokens; excludes logout tokens and proofs of possession.
_TYPES: Final = ("", "jwt", "at+jwt", "application/jwt", "application/at+jwt")


@dataclass(frozen=True, slots=True)
class Header:
    """Signature parameters of a token, trusted only to choose among the issuer's keys. Keys in the header and their
    addresses (`jwk`, `jku`, `x5c`, `x5u`) are ignored."""

    algorithm: str
    key_id: str | None


class _Said(msgspec.Struct):
    alg: str
    kid: str | None = None
    typ: str = ""
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def is_signed(text: str) -> bool:
    """Return whether a text looks like a signed token: three parts, the first of which begins a JSON object."""
    return text.startswith("ey") and text.count(".") == 2


def header_of(token: str, allowed: frozenset[str]) -> Header:
    """Parse the header of a token.

    Raises:
        WrongProof: The header is malformed, or its algorithm is not allowed.
    """
    if len(token) > MAX_LENGTH:
        raise WrongProof(f"the token has more than {MAX_LENGTH} characters", guessed=False)
    try:
        header = msgspec.json.decode(decoded(token.partition(".")[0]), type=_Said)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WrongProof("the token's header is not a valid JWS header (RFC 7515)") from error
    if header.crit is not msgspec.UNSET:
        raise WrongProof("the token's header has extensions that are not supported (crit)", guessed=False)
    if header.typ.lower() not in _TYPES:
        raise WrongProof("the token is not an identity or access token (typ)", guessed=False)
    if header.alg not in allowed or header.alg not in ALGORITHMS:
        raise WrongProof("the token is signed with an algorithm that is not accepted (alg)")
    if header.kid is not None and len(header.kid) > MAX_KEY_ID:
        raise WrongProof("the token's header is not a valid JWS header (RFC 7515)")
    return Header(header.alg, header.kid)


def decoded(part: str) -> bytes:
    """Decode base64url without padding.

    Raises:
        ValueError: The text is not base64url without padding.
    """
    try:
        data = part.encode("ascii")
        if any(byte in b"+/=" for byte in data):
            raise ValueError("not base64url without padding")
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except (UnicodeEncodeError, Error) as error:
        raise ValueError("not base64url") from error
