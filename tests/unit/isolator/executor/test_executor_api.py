"""The executor's HTTP, byte by byte, and what it reads out of its environment."""

import base64
import uuid
from io import BufferedReader, BytesIO

import pytest

from isolator.agent.agent_api import Connection, Settings, seconds
from isolator.agent.http import ProtocolError, Response

RECORD = b'17\n{"type": "ERROR"}'
GIVEN = {"MESOS_AGENT_ENDPOINT": "127.0.0.1:1", "MESOS_FRAMEWORK_ID": "f", "MESOS_EXECUTOR_ID": "e"}


def answer(data: bytes) -> Response:
    return Response(BufferedReader(BytesIO(data)))


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%X;ext=1\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 19, 20, 40])
def test_records_come_out_whole_however_they_are_cut(size: int) -> None:
    response = answer(chunked(RECORD * 2, size))
    for _ in range(2):
        assert response.readline() == b"17\n"
        assert response.read(17) == b'{"type": "ERROR"}'
    assert response.readline() == b""


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 503 Service Unavailable\r\ncontent-LENGTH: 3\r\n\r\n", b"HTTP/1.1 503\r\n\r\n"]
)
def test_a_body_by_length_or_to_the_end(head: bytes) -> None:
    response = answer(head + b"why")
    assert (response.status, response.read(), response.read()) == (503, b"why", b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_answer_that_breaks_off_is_a_connection_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        answer(data).read()


@pytest.mark.parametrize("cut", range(1, len(chunked(RECORD, 7)) - 2))
def test_an_answer_cut_anywhere_raises_nothing_else(cut: int) -> None:
    with pytest.raises(ProtocolError):
        answer(chunked(RECORD, 7)[:cut]).read()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15mins", 900.0), ("2secs", 2.0), ("1.5hrs", 5400.0), ("250ms", 0.25), ("1weeks", 604800)],
)
def test_durations_of_mesos_are_read_in_seconds(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("more", "name", "expected"),
    [
        ({}, "prefix", ""),
        ({"MESOS_SLAVE_PID": "slave(2)@10.0.0.1:5051"}, "prefix", "/slave(2)"),
        ({}, "checkpoint", False),
        ({"MESOS_CHECKPOINT": "0"}, "checkpoint", False),
        ({"MESOS_CHECKPOINT": "1"}, "checkpoint", True),
        ({"MESOS_RECOVERY_TIMEOUT": "1mins"}, "recovery_timeout_s", 60.0),
        ({"MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t"}, "token", "t"),
    ],
)
def test_settings_are_read_from_the_environment(more: dict[str, str], name: str, expected: object) -> None:
    settings = Settings.from_environment({**GIVEN, **more})
    assert getattr(settings, name) == expected
    assert "'t'" not in repr(settings), "a token in no log"


def test_update_ids_are_uuids_of_version_4() -> None:
    """Mesos takes the bytes apart and refuses any other."""
    connection = Connection(Settings.from_environment(GIVEN), None)  # type: ignore[arg-type]
    for _ in range(50):
        connection.update("task", "TASK_RUNNING")
    idents = [uuid.UUID(bytes=base64.b64decode(ident)) for ident in connection._updates]
    assert len(set(idents)) == 50
    assert {(ident.version, ident.variant) for ident in idents} == {(4, uuid.RFC_4122)}
