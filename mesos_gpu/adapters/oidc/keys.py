"""An issuer's public keys (RFC 7517), and signatures by them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from mesos_gpu.access.jws import ALGORITHMS, MAX_KEY_ID, Header
from mesos_gpu.adapters.oidc.fetching import IssuerError

MAX_KEYS: Final = 64
MIN_BITS, MAX_BITS = 2048, 8192  # of RSA
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA: Final = frozenset(each for each in ALGORITHMS if each[:2] in ("RS", "PS"))
_ED25519: Final = frozenset({"EdDSA", "Ed25519"})
_READERS: Final[Mapping[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class Key:
    """A key for signatures.

    Attributes:
        key_id: As the issuer calls it; None: it has no name for it.
        algorithms: For which it may be used.
        public: The key itself.
        thumbprint: The same for the same key, whatever it is called.
    """

    key_id: str | None
    algorithms: frozenset[str]
    public: PublicKey
    thumbprint: str

    def signed(self, token: str, algorithm: str) -> bytes | None:
        """What a token carries; None: this key has not signed it."""
        try:
            payload: bytes = _JWS.decode(token, self.public, algorithms=[algorithm])
        except jwt.InvalidTokenError:
            return None
        return payload


@dataclass(frozen=True, slots=True)
class Keys:
    """All of an issuer."""

    each: tuple[Key, ...]

    def find(self, header: Header) -> Key | None:
        """The one that a header names; if it names none, the only one for its algorithm. None: there is no such."""
        fit = [key for key in self.each if header.algorithm in key.algorithms]
        if header.key_id is not None:
            fit = [key for key in fit if key.key_id == header.key_id]
        return fit[0] if len(fit) == 1 else None

    def has(self, thumbprint: str) -> bool:
        """Whether a key is still one of them."""
        return any(key.thumbprint == thumbprint for key in self.each)


_JWS: Final = jwt.PyJWS(algorithms=list(ALGORITHMS))
_JWS.register_algorithm("Ed25519", OKPAlgorithm())  # keys of other curves are left out


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse(body: bytes) -> Keys:
    """Read an issuer's keys; those for anything but signatures, or that are too weak, are left out.

    Raises:
        IssuerError: It is no list of keys, or none is left.
    """
    try:
        given = msgspec.json.decode(body, type=_Document).keys
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IssuerError(
            "what the issuer names as its keys are none", remedy="look at the issuer"
        ) from error
    if len(given) > MAX_KEYS:
        raise IssuerError(f"the issuer has more than {MAX_KEYS} keys", remedy="look at the issuer")
    keys = tuple(_distinct(key for each in given if (key := _key(each)) is not None))
    if not keys:
        raise IssuerError("the issuer has no key that is taken here", remedy="look at the issuer")
    return Keys(keys)


def _distinct(keys: Iterable[Key]) -> list[Key]:
    return list({(key.key_id, key.thumbprint): key for key in keys}.values())


def _key(said: Mapping[str, Any]) -> Key | None:
    reader, key_id, use, operations = (said.get(name) for name in ("kty", "kid", "use", "key_ops"))
    if not isinstance(reader, str) or reader not in _READERS or use not in (None, "sig") or "d" in said:
        return None
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID):
        return None
    try:
        public = _READERS[reader].from_jwk(dict(said))
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    algorithms = _algorithms(public)
    if said.get("alg") is not None:
        algorithms &= {said["alg"]} if isinstance(said["alg"], str) else set()
    return Key(key_id, algorithms, public, _thumbprint(public)) if algorithms else None


def _algorithms(public: object) -> frozenset[str]:
    """For which a key of this kind is good enough; none: for nothing."""
    if isinstance(public, RSAPublicKey):
        is_good = MIN_BITS <= public.key_size <= MAX_BITS and public.public_numbers().e < 1 << 33
        return _RSA if is_good else frozenset()
    if isinstance(public, EllipticCurvePublicKey):
        algorithm = _CURVES.get(public.curve.name)
        return frozenset({algorithm}) if algorithm else frozenset()
    return _ED25519 if isinstance(public, Ed25519PublicKey) else frozenset()


def _thumbprint(public: PublicKey) -> str:
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()[:16]
