"""Frames, calls and orders: what goes in comes out, and nothing else is taken."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.wire.channel.call import Call, answer_to, decode_call, encode_call
from mesos_gpu.wire.channel.forward import Forward, forward_of
from mesos_gpu.wire.channel.frames import (
    FROM_CLIENT,
    FROM_HOST,
    MAX_DATA,
    MAX_FRAME,
    WINDOW,
    Frame,
    Kind,
    decode,
    encode,
)
from mesos_gpu.wire.channel.order import Order, order_of
from mesos_gpu.wire.channel.orders import decode_order, encode_order

EVERY_BYTE = bytes(range(256))
SECRET = "5e" * 16
CALL = Call("c1", "job.1", "https://scheduler:8080", "ab" * 32)

frames = st.one_of(
    st.builds(
        Frame,
        st.sampled_from([Kind.STDIN, Kind.STDOUT, Kind.STDERR, Kind.FAILED, Kind.ORDER]),
        st.binary(max_size=300),
    ),
    st.just(Frame(Kind.EOF)),
    st.builds(lambda *size: Frame(Kind.SIZE, numbers=size), st.integers(0, 65535), st.integers(0, 65535)),
    st.builds(lambda n: Frame(Kind.SIGNAL, numbers=(n,)), st.integers(0, 64)),
    st.builds(lambda n: Frame(Kind.CREDIT, numbers=(n,)), st.integers(0, WINDOW)),
    st.builds(lambda n: Frame(Kind.EXIT, numbers=(n,)), st.integers(0, 255)),
)


@given(frames)
def test_channel_frame_comes_back(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@pytest.mark.parametrize("kind", [Kind.STDIN, Kind.STDOUT, Kind.STDERR])
def test_channel_frame_carries_every_byte_value(kind: Kind) -> None:
    assert decode(encode(Frame(kind, EVERY_BYTE))).data == EVERY_BYTE


@given(st.binary(max_size=12))
def test_channel_frame_of_any_bytes_is_decoded_or_refused(message: bytes) -> None:
    try:
        frame = decode(message)
    except ValueError:
        return
    assert encode(frame) == message


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xff", b"\x03x", b"\x04\0\x18\0", b"\x05\0\0\0\x41", b"\x06\0\x10\0\x01", b"\x07\0\0\x01\0",
        bytes(MAX_FRAME + 1),
    ],
    ids=["none", "unknown", "eof with data", "short size", "signal 65", "credit", "exit 256", "too large"],
)  # fmt: skip
def test_channel_frame_that_is_malformed_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError):
        decode(message)


def test_channel_frame_that_is_too_large_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="65537 bytes, more than 65536"):
        encode(Frame(Kind.STDIN, bytes(MAX_DATA + 1)))


def test_channel_frame_kinds_are_sent_by_one_side() -> None:
    assert {Kind.CREDIT} == FROM_CLIENT & FROM_HOST  # both
    assert set(Kind) - FROM_CLIENT - FROM_HOST == {Kind.ORDER}


def test_channel_call_reaches_its_executor() -> None:
    assert decode_call(encode_call(CALL, SECRET), "job.1", SECRET) == CALL


@pytest.mark.parametrize("field", ["id", "task_id", "url", "pin", "seal"])
def test_channel_call_that_was_changed_is_refused(field: str) -> None:
    said = json.loads(encode_call(CALL, SECRET))
    said["channel"][field] = "http://elsewhere"
    with pytest.raises(ValueError, match="not from the scheduler"):
        decode_call(json.dumps(said).encode(), "job.1", SECRET)


@pytest.mark.parametrize("secret", ["", "00" * 16])
def test_channel_call_without_the_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="not from the scheduler"):
        decode_call(encode_call(CALL, "00" * 15), "job.1", secret)


def test_channel_call_to_another_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"for another task, 'job\.1'"):
        decode_call(encode_call(CALL, SECRET), "job.2", SECRET)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"channel": 1}', b'{"channel": {}}'])
def test_channel_call_that_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_call(data, "job.1", SECRET)


def test_channel_answer_differs_from_the_seal() -> None:
    seal = json.loads(encode_call(CALL, SECRET))["channel"]["seal"]
    answers = {answer_to(CALL, SECRET), answer_to(replace(CALL, id="c2"), SECRET), answer_to(CALL, "0" * 32)}
    assert len(answers) == 3
    assert seal not in answers


def test_channel_order_comes_back() -> None:
    order = Order(("sh", "-c", "echo é"), stdin=True, tty=True, rows=50, columns=132, term="tmux-256color")
    assert decode_order(encode_order(order)) == order


def test_channel_order_ports_come_back() -> None:
    order = Forward((80, 65535))
    assert decode_order(encode_order(order)) == order
    assert decode_order(b'{"argv": ["true"]}') == Order(
        ("true",)
    )  # as a release sends it that knows nothing else


@pytest.mark.parametrize(
    "data", [b"[]", b"", b'{"kind": "x"}', b'{"kind": []}', b'{"kind": "forward", "ports": [0]}']
)
def test_channel_order_that_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_order(data)


@pytest.mark.parametrize("ports", [None, [], [0], [65536], ["80"], [True], list(range(1, 34)), 80])
def test_channel_order_ports_that_are_malformed_are_reported(ports: object) -> None:
    order, problems = forward_of({"ports": ports, "more": 1})
    assert order is None
    assert [each.path for each in problems] == ["/more", "/ports"]


def test_channel_order_problems_are_reported_at_once() -> None:
    order, problems = order_of(
        {"argv": [], "stdin": 1, "tty": "x", "rows": -1, "columns": True, "term": "a b", "more": 0}
    )
    assert order is None
    assert {each.path for each in problems} == {
        "/argv", "/stdin", "/tty", "/rows", "/columns", "/term", "/more",
    }  # fmt: skip


def test_channel_order_null_field_is_absent() -> None:
    order, problems = order_of({"argv": ["true"], "tty": None, "rows": None})
    assert (order, problems) == (Order(("true",)), [])
