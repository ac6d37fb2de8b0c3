"""Encoding of the ports at which a task listens."""

import json

import pytest

from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.wire.hosts.listening import decode_listening, encode_listening


def test_listening_is_decoded_and_other_data_is_not() -> None:
    said = Listening((31000, 1), "of uid 7")
    assert decode_listening(encode_listening(said)) == said
    assert decode_listening(encode_listening(Listening())) == Listening()
    assert decode_listening(b'{"noticed":3}') is None
    assert decode_listening(b"\xff") is None
    assert decode_listening(b"[]") is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "must be an object"),
        ({"problem": ""}, "ports must be a list"),
        ({"ports": [0], "problem": ""}, "from 1 to 65535"),
        ({"ports": [True], "problem": ""}, "from 1 to 65535"),
        ({"ports": [1] * 1001, "problem": ""}, "ports must be a list"),
        ({"ports": [1], "problem": 3}, "problem must be a string"),
        ({"ports": [1], "problem": "x" * 2001}, "at most 2000"),
    ],
)
def test_invalid_listening_is_refused(said: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_listening(json.dumps({"listening": said}).encode())
