"""Encrypted messages to a host: HPKE (RFC 9180) with X25519, HKDF-SHA256 and ChaCha20-Poly1305.

Any holder of the public key can encrypt; only the host can decrypt. Each message has its own ephemeral key. The purpose
of a message goes into the key schedule as `info`: for another purpose it is refused like a forged message.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

_BLOCK: Final = 256  # bytes; sizes are rounded up to it, as they would reveal kinds of secrets


class Unopened(ValueError):
    """A message was encrypted to another key, or for another purpose, or was damaged in transit."""


def purpose(task_id: str, agent_id: str) -> bytes:
    """Return the purpose of a message with a task's secrets: its only launch, on that agent."""
    return json.dumps(["mesos_gpu secrets 1", task_id, agent_id]).encode()


class _Host(Protocol):
    """A host's side of HPKE."""

    def new_key(self) -> bytes: ...
    def public_of(self, private: bytes) -> bytes: ...
    def decrypt(self, sealed: bytes, private: bytes, info: bytes) -> bytes: ...


def _host() -> _Host:
    """Return an implementation: by cryptography if installed, else by this Python's OpenSSL."""
    try:
        from mesos_gpu.adapters.secrets import packaged
    except ImportError:
        from mesos_gpu.adapters.secrets import libcrypto

        return libcrypto
    return packaged


def new_key() -> bytes:
    """Generate a private key.

    Raises:
        Unavailable: This host has neither cryptography nor OpenSSL 3.
    """
    return _host().new_key()


def public_of(private: bytes) -> str:
    """Return the public key of a private key, as text.

    Raises:
        Unavailable: This host has neither cryptography nor OpenSSL 3.
    """
    return base64.b64encode(_host().public_of(private)).decode()


def seal(values: Mapping[str, bytes], public: str, info: bytes) -> str:
    """Return a message that only the key's owner can decrypt.

    Args:
        values: Secret values by name.
        public: Public key, as returned by `public_of`.
        info: Purpose of the message.

    Raises:
        ValueError: The public key is invalid.
    """
    body = json.dumps({name: base64.b64encode(value).decode() for name, value in values.items()}).encode()
    body += b" " * (-len(body) % _BLOCK)
    from mesos_gpu.adapters.secrets import packaged  # always installed on the scheduler's host

    return base64.b64encode(packaged.encrypt(body, base64.b64decode(public, validate=True), info)).decode()


def unseal(message: str, private: Sequence[bytes], info: bytes) -> dict[str, bytes]:
    """Return the values that were encrypted to one of some keys; the likeliest key should be first.

    Raises:
        Unopened: None of the keys decrypts the message.
    """
    try:
        sealed = base64.b64decode(message, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unopened("it is not an encrypted message") from error
    host = _host()
    for key in private:
        try:
            body = host.decrypt(sealed, key, info)
        except ValueError:
            continue
        return {name: base64.b64decode(value) for name, value in json.loads(body).items()}
    raise Unopened("none of this host's keys decrypts it for this task")
