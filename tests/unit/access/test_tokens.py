"""Tokens: their form, and what proves one."""

from dataclasses import replace

import pytest

from mesos_gpu.access.tokens import caller_of, digest_of, is_proved, parts_of, text_of
from mesos_gpu.model.access.caller import Narrowing, Proof
from mesos_gpu.model.access.token import Token

SECRET = "A-_" + "x" * 40
TOKEN = Token(
    "0123456789ab", "ann", "5a17", digest_of("5a17", SECRET), 1.0, 100.0, ("ml",), Narrowing(("job:*",))
)


def test_a_token_is_read_as_it_was_shown() -> None:
    assert parts_of(text_of(TOKEN.id, SECRET)) == (TOKEN.id, SECRET)


@pytest.mark.parametrize(
    "text", ["", "mgpu_", f"mgpu_x_{SECRET}", f"xgpu_{TOKEN.id}_{SECRET}", f"mgpu_{TOKEN.id}_{SECRET}\n",
             f"mgpu_{TOKEN.id}_{SECRET}x", f"mgpu_{TOKEN.id.upper()}_{SECRET}"]
)  # fmt: skip
def test_token_of_another_form_gives_none(text: str) -> None:
    assert parts_of(text) is None


def test_token_secret_proves_until_it_expires() -> None:
    assert is_proved(TOKEN, SECRET, 99.9)
    assert not is_proved(TOKEN, SECRET, 100.0)
    assert not is_proved(TOKEN, SECRET[:-1] + "y", 1.0)
    assert not is_proved(None, SECRET, 1.0)
    assert not is_proved(replace(TOKEN, salt="5a18"), SECRET, 1.0)


def test_a_token_as_a_journal_has_it_proves_nothing() -> None:
    for secret in ("", SECRET, "0" * 64):
        assert not is_proved(replace(TOKEN, salt="", digest=""), secret, 1.0)


def test_token_caller_has_its_name_and_narrowing() -> None:
    caller = caller_of(TOKEN, "10.0.0.1")
    assert (caller.name, caller.groups, caller.proof) == ("ann", frozenset({"ml"}), Proof.TOKEN)
    assert (caller.narrowing, caller.until, caller.proof_id) == (TOKEN.narrowing, 100.0, TOKEN.id)
    assert not caller.local_admin


def test_token_prints_neither_salt_nor_digest() -> None:
    assert "5a17" not in repr(TOKEN)
    assert TOKEN.digest not in repr(TOKEN)
