"""Messages that are sealed to a host's key: who opens them, and for what."""

import base64
import sys

import pytest

from mesos_gpu.adapters.secrets import envelope, libcrypto, packaged
from mesos_gpu.errors import Unavailable

KEY, OTHER = envelope.new_key(), envelope.new_key()
INFO = envelope.purpose("train-1.1", "S0")
VALUES = {"A": b"one", "B": b"\0\xff" * 99}


def test_envelope_is_opened_by_the_owner_of_the_key() -> None:
    message = envelope.seal(VALUES, envelope.public_of(KEY), INFO)
    assert envelope.unseal(message, [OTHER, KEY], INFO) == VALUES
    assert b"one" not in base64.b64decode(message)


def test_envelope_is_not_opened_by_another_key() -> None:
    message = envelope.seal(VALUES, envelope.public_of(KEY), INFO)
    with pytest.raises(envelope.Unopened):
        envelope.unseal(message, [OTHER], INFO)
    with pytest.raises(envelope.Unopened):
        envelope.unseal(message, [], INFO)


@pytest.mark.parametrize("purpose", [("train-1.2", "S0"), ("train-1.1", "S1"), ("train-1.1S", "0"), ("", "")])
def test_envelope_serves_one_launch_on_one_agent(purpose: tuple[str, str]) -> None:
    message = envelope.seal(VALUES, envelope.public_of(KEY), INFO)
    with pytest.raises(envelope.Unopened):
        envelope.unseal(message, [KEY], envelope.purpose(*purpose))


def test_envelope_refuses_a_changed_message() -> None:
    sealed = bytearray(base64.b64decode(envelope.seal(VALUES, envelope.public_of(KEY), INFO)))
    for at in range(0, len(sealed), 7):
        changed = sealed.copy()
        changed[at] ^= 1
        with pytest.raises(envelope.Unopened):
            envelope.unseal(base64.b64encode(changed).decode(), [KEY], INFO)
    for wrong in ("", "no base64!", base64.b64encode(b"x" * 10).decode()):
        with pytest.raises(envelope.Unopened):
            envelope.unseal(wrong, [KEY], INFO)


def test_envelopes_of_one_value_differ_and_have_one_size() -> None:
    public = envelope.public_of(KEY)
    one, two = (envelope.seal({"A": value}, public, INFO) for value in (b"x", b"longer by some"))
    assert one != two
    assert len(one) == len(two)


@pytest.mark.parametrize("key", ["", "AAAA", "no key", base64.b64encode(bytes(32)).decode()])
def test_envelope_refuses_a_malformed_key(key: str) -> None:
    with pytest.raises(ValueError):
        envelope.seal(VALUES, key, INFO)


# --- a host without cryptography


def test_envelope_libraries_open_sealed_messages_and_agree_on_keys() -> None:
    for _ in range(20):
        key = libcrypto.new_key()
        assert libcrypto.public_of(key) == packaged.public_of(key)
        for body in (b"", b"x", bytes(range(256)) * 5):
            sealed = packaged.encrypt(body, libcrypto.public_of(key), INFO)
            assert libcrypto.decrypt(sealed, key, INFO) == packaged.decrypt(sealed, key, INFO) == body


def test_envelope_libraries_refuse_changed_and_foreign_messages() -> None:
    sealed = packaged.encrypt(b"secret", packaged.public_of(KEY), INFO)
    forged = [bytes([*sealed[:at], sealed[at] ^ 0x40, *sealed[at + 1 :]]) for at in range(len(sealed))]
    small = [bytes(32) + sealed[32:], b"\x01" + bytes(31) + sealed[32:]]  # points of small order
    for message in (*forged, *small, *(sealed[:end] for end in range(len(sealed))), sealed + b"\0"):
        for library in (libcrypto, packaged):
            with pytest.raises(ValueError):
                library.decrypt(message, KEY, INFO)
    for key, info in ((OTHER, INFO), (KEY, b""), (KEY[:31], INFO), (b"", INFO)):
        with pytest.raises(ValueError):
            libcrypto.decrypt(sealed, key, info)


def test_envelope_without_a_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "mesos_gpu.adapters.secrets.packaged", None)
    monkeypatch.delattr("mesos_gpu.adapters.secrets.packaged")
    libcrypto._library.cache_clear()
    monkeypatch.setattr("ctypes.CDLL", absent)
    with pytest.raises(Unavailable, match=r"libcrypto\.so\.3.*\n.*libssl3"):
        envelope.new_key()
