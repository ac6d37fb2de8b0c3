"""Headers of tokens: read as they are, and nothing of them believed."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.access.jws import ALGORITHMS, Header, decoded, header_of, is_signed
from mesos_gpu.access.proofs import WrongProof

ALL = frozenset(ALGORITHMS)


def test_no_algorithm_is_taken_that_has_no_public_key() -> None:
    assert not [each for each in ALGORITHMS if each.lower() == "none" or each.startswith("HS")]
    with pytest.raises(WrongProof):
        header_of("eyJhbGciOiJIUzI1NiJ9.e30.", frozenset({"HS256", "none"}))  # whatever the settings are


def test_a_header_is_read_as_algorithm_and_key_id() -> None:
    assert header_of("eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.x", ALL) == Header("ES256", "a")
    with pytest.raises(WrongProof):
        header_of("eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.x", frozenset({"RS256"}))


@given(st.text(max_size=200))
def test_any_text_is_refused_or_read(text: str) -> None:
    try:
        header_of(text, ALL)
    except WrongProof:
        assert isinstance(is_signed(text), bool)


@given(st.binary(max_size=60))
def test_parts_are_base64url_alone(data: bytes) -> None:
    encoded = urlsafe_b64encode(data).decode()
    assert decoded(encoded.rstrip("=")) == data
    for wrong in (encoded.rstrip("=") + "=", encoded.rstrip("=") + "+", "é"):
        with pytest.raises(ValueError, match="base64url"):
            decoded(wrong)
