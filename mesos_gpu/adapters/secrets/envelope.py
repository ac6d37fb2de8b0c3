"""Sealed messages to a host: HPKE (RFC 9180) with X25519, HKDF-SHA256 and ChaCha20-Poly1305.

Whoever has the public key can seal, the host alone can open. Each message has an ephemeral key of its own. What a
message is for goes into the key schedule as `info`: opened for another purpose it is refused like a forged one.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_BLOCK: Final = 256  # sizes are rounded up to it: they would tell of tokens and passwords what they are


class Unopened(ValueError):
    """A message was sealed to another key, or for another purpose, or was damaged on its way."""


def purpose(task_id: str, agent_id: str) -> bytes:
    """What a message with a task's secrets is for: the only launch of that task, on that agent."""
    return json.dumps(["mesos_gpu secrets 1", task_id, agent_id]).encode()


def new_key() -> bytes:
    """A private key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(private: bytes) -> str:
    """The public key of a private one, as text."""
    key = X25519PrivateKey.from_private_bytes(private).public_key()
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def seal(values: Mapping[str, bytes], public: str, info: bytes) -> str:
    """A message that only the key's owner opens.

    Args:
        values: By names.
        public: As `public_of` gives it.
        info: What it is for.

    Raises:
        ValueError: It is no key to seal to.
    """
    body = json.dumps({name: base64.b64encode(value).decode() for name, value in values.items()}).encode()
    body += b" " * (-len(body) % _BLOCK)
    key = X25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
    return base64.b64encode(_SUITE.encrypt(body, key, info)).decode()


def unseal(message: str, private: Sequence[bytes], info: bytes) -> dict[str, bytes]:
    """What was sealed to one of some keys, the likeliest first.

    Raises:
        Unopened: None of them opens it.
    """
    try:
        sealed = base64.b64decode(message, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unopened("it is no sealed message") from error
    for key in private:
        try:
            body = _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(key), info)
        except (InvalidTag, ValueError):
            continue
        return {name: base64.b64decode(value) for name, value in json.loads(body).items()}
    raise Unopened("none of this host's keys opens it for this task")
