"""Sealed messages to a host: HPKE (RFC 9180) with X25519, HKDF-SHA256 and ChaCha20-Poly1305.

Whoever has the public key can seal, the host alone can open. Each message has an ephemeral key of its own. What a
message is for goes into the key schedule as `info`: opened for another purpose it is refused like a forged one.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

_BLOCK: Final = 256  # sizes are rounded up to it: they would tell of tokens and passwords what they are


class Unopened(ValueError):
    """A message was sealed to another key, or for another purpose, or was damaged on its way."""


def purpose(task_id: str, agent_id: str) -> bytes:
    """What a message with a task's secrets is for: the only launch of that task, on that agent."""
    return json.dumps(["mesos_gpu secrets 1", task_id, agent_id]).encode()


class _Host(Protocol):
    """A host's side of HPKE."""

    def new_key(self) -> bytes: ...
    def public_of(self, private: bytes) -> bytes: ...
    def decrypt(self, sealed: bytes, private: bytes, info: bytes) -> bytes: ...


def _host() -> _Host:
    """By cryptography where it is installed, else by the OpenSSL of this Python: mesos-gpu-executor.pyz has neither."""
    try:
        from mesos_gpu.adapters.secrets import packaged
    except ImportError:
        from mesos_gpu.adapters.secrets import libcrypto

        return libcrypto
    return packaged


def new_key() -> bytes:
    """A private key.

    Raises:
        Unavailable: This host has neither cryptography nor OpenSSL 3.
    """
    return _host().new_key()


def public_of(private: bytes) -> str:
    """The public key of a private one, as text.

    Raises:
        Unavailable: As of `new_key`.
    """
    return base64.b64encode(_host().public_of(private)).decode()


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
    from mesos_gpu.adapters.secrets import packaged  # the scheduler's host has it

    return base64.b64encode(packaged.encrypt(body, base64.b64decode(public, validate=True), info)).decode()


def unseal(message: str, private: Sequence[bytes], info: bytes) -> dict[str, bytes]:
    """What was sealed to one of some keys, the likeliest first.

    Raises:
        Unopened: None of them opens it.
    """
    try:
        sealed = base64.b64decode(message, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unopened("it is no sealed message") from error
    host = _host()
    for key in private:
        try:
            body = host.decrypt(sealed, key, info)
        except ValueError:
            continue
        return {name: base64.b64decode(value) for name, value in json.loads(body).items()}
    raise Unopened("none of this host's keys opens it for this task")
