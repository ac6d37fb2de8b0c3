"""Requests to an executor about a share, and its answers: both ways, and refusals."""

import json

import pytest

from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.wire.mesos import assignment
from mesos_gpu.wire.mesos.resize import decode_answer, decode_request, encode_answer, encode_request
from mesos_gpu.wire.mesos.v1 import start_message

ASKED = Resize(3, 20480, 40960, 300)
ANSWERS = (
    ResizeAnswer(3, 20480, 40960, 300),
    ResizeAnswer(3, 30000, 30000, 500, "it uses 25000 MiB", used_mib=25000),
    ResizeAnswer(3, 30000, 30000, 500, "an MPS percentage is fixed at the start", restart=True),
)


def test_resize_request_comes_back() -> None:
    assert decode_request(encode_request(ASKED)) == ASKED


@pytest.mark.parametrize("answer", ANSWERS)
def test_resize_answer_comes_back(answer: ResizeAnswer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff", start_message(), assignment.encode(Outcome(exit_status=0))]
)
def test_resize_codec_ignores_other_messages(data: bytes) -> None:
    assert (decode_request(data), decode_answer(data)) == (None, None)


@pytest.mark.parametrize("wrong", [None, -1, 1.5, "1", True])
@pytest.mark.parametrize("name", ["number", "memory_mib", "memory_max_mib", "compute_milli"])
def test_resize_amount_that_is_malformed_is_named(name: str, wrong: object) -> None:
    for encode, decode, key in (
        (encode_request(ASKED), decode_request, "resize"),
        (encode_answer(ANSWERS[0]), decode_answer, "resized"),
    ):
        value = json.loads(encode)
        value[key][name] = wrong
        with pytest.raises(ValueError, match=name):
            decode(json.dumps(value).encode())


def test_resize_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="must be an object"):
        decode_request(b'{"resize": [1]}')
