"""JSON within limits: what is beyond them is named with its place, and costs no more than to see it."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.wire import body
from mesos_gpu.wire.body import decoded
from mesos_gpu.wire.checking import MAX_CHARACTERS, MAX_ENTRIES, BadJson, excess_of, object_of
from mesos_gpu.wire.jobs import spec_from_mapping
from mesos_gpu.wire.marathon.app import decode_app, json_of
from mesos_gpu.wire.marathon.problems import Problems

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**99), 10**99) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)  # fmt: skip


@given(DOCUMENTS)
@settings(max_examples=20)
def test_json_body_within_the_limits_is_what_was_sent(value: Any) -> None:
    assert_decoded(value)


@pytest.mark.long
@given(DOCUMENTS)
def test_json_bodies_of_many_kinds_are_what_was_sent(value: Any) -> None:
    assert_decoded(value)


def assert_decoded(value: Any) -> None:
    """Assert that a value comes back as the standard library decodes it."""
    raw = json.dumps(value).encode("utf-8", "surrogatepass")
    try:
        sent = json.loads(raw)
        raw.decode()
        json.dumps(sent, ensure_ascii=False).encode()
    except UnicodeError:
        return  # a lone surrogate as a key
    assert decoded(raw) == sent


BEYOND: list[tuple[bytes, str]] = [
    (b"", "Expecting value"),
    (b"NaN", "is not a JSON number"),
    (b"Infinity", "is not a JSON number"),
    (b"-Infinity", "is not a JSON number"),
    (b"1e999", "out of range"),
    (b"-1e999", "out of range"),
    (b"1" * 5000, "out of range"),
    (b"1" * 101, "/ is an integer of more than 100 digits"),
    (b'{"a":[-' + b"1" * 200 + b"]}", "/a/0 is an integer of more than 100 digits"),
    (b'{"a":1,"a":2}', "field 'a' appears twice"),
    (b'{"a":{"b":1,"\\u0062":2}}', "field 'b' appears twice"),
    (b'"\\ud800"', ""),
    (b'"\\udc00x"', ""),
    (b'"\xed\xa0\x80"', "utf-8"),
    (b'"\xc0\xaf"', "utf-8"),
    (b"\xef\xbb\xbf{}", "BOM"),
    (json.dumps({}).encode("utf-16"), "utf-8"),
    (b"[" * 65 + b"]" * 65, "is nested deeper than 64"),
    (b'{"a":' * 100 + b"1" + b"}" * 100, "/a/a/a"),
    (b"[" * 500_000 + b"]" * 500_000, "it is nested too deeply"),
    (b"[" * 1_000_000, "it is nested too deeply"),
    (b"[" + b"1," * 10_000 + b"1]", "/ has 10001 items, more than 10000"),
    (b'{"x":[' + b"[1,1,1,1,1,1,1,1,1,1]," * 9_999 + b"[]]}", "values, more than 100000"),
    (json.dumps({str(n): 1 for n in range(10_001)}).encode(), "/ has 10001 fields, more than 10000"),
    (json.dumps({"a/b~": {"k" * 4097: 1}}).encode(), "/a~1b~0 has a field whose name has 4097 characters"),
    (json.dumps(["x" * (body.MAX_TEXT + 1)]).encode(), "/0 has 131073 characters, more than 131072"),
    (b"01", ""),
    (b"1.", ""),
    (b"+1", ""),
    (b"'a'", ""),
    (b"{} {}", ""),
    (b"[1,]", ""),
    (b'"a\nb"', ""),
    (b'"a\0b"', ""),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "why"), BEYOND)
def test_json_body_beyond_a_limit_is_refused_with_its_place(raw: bytes, why: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r".") as refused:
        decoded(raw)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 300
    assert time.process_time() - began < 5


def test_json_body_beyond_a_limit_is_refused_by_both_interfaces() -> None:
    for raw, _ in BEYOND:
        if len(raw) < 10_000:
            with pytest.raises(BadJson):
                object_of(raw)
            marathon = json_of(raw)
            assert isinstance(marathon, Problems), raw
            assert marathon.status == 400


@pytest.mark.parametrize(
    "raw", [b"[" * 64 + b"]" * 64, b"1" * 100, b"[" + b"1," * 9_999 + b"1]", b'{"a":1,"b":1}']
)
def test_json_body_at_a_limit_is_taken(raw: bytes) -> None:
    assert decoded(raw) == json.loads(raw)


def test_json_number_of_minus_zero_is_zero() -> None:
    spec = spec_from_mapping({"command": "true", "kill_grace_s": -0.0})
    assert not isinstance(spec, list)
    assert str(spec.kill_grace_s) == "0.0"


@pytest.mark.parametrize(
    ("strings", "why"),
    [
        ({str(n): "" for n in range(MAX_ENTRIES + 1)}, "must have at most 1000 entries, got 1001"),
        ({"A" * 1025: ""}, "must have names of at most 1024 characters, got one of 1025"),
        (
            {"A": "x" * 131_000, "B": "x" * 131_000, "C": "x" * 1000},
            "must have at most 262144 characters in all, got 263003",
        ),
    ],
)
@pytest.mark.parametrize("key", ["env", "labels"])
def test_environment_and_labels_are_bounded_for_jobs_and_apps(
    key: str, strings: dict[str, str], why: str
) -> None:
    problems = spec_from_mapping({"command": "true", key: strings})
    assert isinstance(problems, list)
    assert [(each.path, each.reason) for each in problems] == [(f"/{key}", why)]
    of_app = decode_app(json.dumps({"id": "/a", "cmd": "true", key: strings}).encode())
    assert isinstance(of_app, Problems)
    assert why in str(of_app.details)


def test_json_body_with_as_many_values_as_allowed_is_taken() -> None:
    assert excess_of({str(n): "" for n in range(MAX_ENTRIES)}) == ""
    assert excess_of({"A": "x" * (MAX_CHARACTERS - 1)}) == ""
