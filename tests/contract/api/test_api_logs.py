"""A task's output through an agent's files API, over real sockets."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.v1.logs import Chunk, log_times, whole
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.cuts import HEAD_BYTES, TIMES, head
from tests.contract.abuse.agents import Reader

VIRTUAL = "/frameworks/fw/executors/e1/runs/latest"
REAL = "/var/lib/mesos/slaves/S0/frameworks/fw/executors/e1/runs/7"
STATE = {
    "frameworks": [],
    "completed_frameworks": [
        {"id": "fw", "executors": [], "completed_executors": [{"id": "e1", "directory": REAL}]}
    ],
}


def in_json(byte: int) -> bytes:
    """A byte of a string as picojson, which Mesos uses, writes it."""
    if byte in b'"\\/':
        return b"\\" + bytes([byte])
    return b"\\u%04x" % byte if byte < 0x20 or byte == 0x7F else bytes([byte])


class Agent:
    """/files/read and /state as Mesos 1.11 answers them: bytes go into the JSON as they are, a read is
    capped (here at 16 bytes, there at 16 pages), offset -1 asks for the size."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.state: bytes = json.dumps(STATE).encode()
        self.status = 200
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {key: value[0] for key, value in parse_qs(url.query).items()}
                status, body = agent.answer(url.path, query)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.max_bytes = 16  # of an answer
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        if path == "/state" or self.status != 200:
            return self.status, self.state
        content = self.files.get(query["path"])
        if content is None:
            return 404, b"Not found.\n"
        offset, length = int(query["offset"]), int(query["length"])
        if offset < 0 or offset >= len(content) or not length:
            return 200, b'{"data":"","offset":%d}' % len(content)
        data = b"".join(map(in_json, content[offset : offset + min(length, self.max_bytes)]))
        return 200, b'{"data":"%s","offset":%d}' % (data, offset)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    agent.close()


@pytest.fixture
def reader() -> Reader:
    return Reader()


def launch(url: str, state: TaskState = TaskState.RUNNING) -> Task:
    return Task(TaskId("j.1"), AgentId("S0"), "e1", JobId("j"), state, 0.0, hostname="h1", agent_url=url)


def pieces(read: Callable[[int], tuple[str, int]]) -> str:
    text, offset = "", 0
    while True:
        data, after = read(offset)
        if after == offset:
            return text
        text, offset = text + data, after


def test_a_read_is_as_long_as_asked_though_the_agent_caps_it(agent: Agent, reader: Reader) -> None:
    agent.files[f"{VIRTUAL}/stdout"] = b"0123456789" * 10
    chunk = reader.read(launch(agent.url), "fw", "stdout", 5, 50)
    assert (chunk.data, chunk.offset, chunk.next_offset) == ("5678901234" * 5, 5, 55)
    chunk = reader.read(launch(agent.url), "fw", "stdout", -40, 1000)
    assert (chunk.data, chunk.offset, chunk.next_offset) == ("0123456789" * 4, 60, 100)
    assert reader.read(launch(agent.url), "fw", "stdout", 100, 10).data == ""


@pytest.mark.parametrize("length", [1, 5, 7, 16, 1000])
def test_pieces_keep_characters_whole_and_bad_bytes_are_replaced(
    agent: Agent, reader: Reader, length: int
) -> None:
    agent.files[f"{VIRTUAL}/stderr"] = "zwölf Äpfel für 3 € 🍏\n".encode() + b"\xff\xfe\n" + "é".encode()[:1]

    def read(state: TaskState) -> Callable[[int], tuple[str, int]]:
        def one(offset: int) -> tuple[str, int]:
            chunk = reader.read(launch(agent.url, state), "fw", "stderr", offset, length)
            return chunk.data, chunk.next_offset

        return one

    text = "zwölf Äpfel für 3 € 🍏\n\ufffd\ufffd\n"
    assert pieces(read(TaskState.RUNNING)) == text, "the rest of the last character may yet come"
    assert pieces(read(TaskState.FAILED)) == text + "\ufffd"


def test_the_tail_begins_with_a_whole_character(agent: Agent, reader: Reader) -> None:
    agent.files[f"{VIRTUAL}/stdout"] = "a€b".encode()
    chunk = reader.read(launch(agent.url), "fw", "stdout", -2, 100)
    assert (chunk.data, chunk.offset, chunk.next_offset) == ("b", 4, 5)
    assert reader.read(launch(agent.url), "fw", "stdout", -99, 100).data == "a€b"


def test_a_log_that_was_cut_says_so_and_goes_on_where_it_does(agent: Agent, reader: Reader) -> None:
    begin, agent.max_bytes = HEAD_BYTES + 5000, 512
    agent.files[f"{VIRTUAL}/stdout"] = head(begin, 7) + bytes(5000) + b"what is left\n" * 3

    def read(offset: int, length: int = 26) -> tuple[str, int, int]:
        chunk = reader.read(launch(agent.url), "fw", "stdout", offset, length)
        return chunk.data, chunk.offset, chunk.next_offset

    says = head(begin, 7).decode().rstrip() + "\n"
    for offset in (
        0,
        10,
        HEAD_BYTES - 1,
        HEAD_BYTES,
        begin - 1,
        -100,
    ):  # from the start, or a reader who is late
        assert read(offset) == (says + "what is left\n" * 2, begin, begin + 26)
    assert read(begin) == ("what is left\n" * 2, begin, begin + 26)
    assert read(begin + 26) == ("what is left\n", begin + 26, begin + 39)
    assert read(begin + 39) == ("", begin + 39, begin + 39)


def test_a_cut_between_two_pages_of_a_piece_is_seen(agent: Agent, reader: Reader) -> None:
    """The agent gives few bytes at once: those after the first are of a hole by then."""
    stdout, begin = f"{VIRTUAL}/stdout", HEAD_BYTES + 5000
    agent.files[stdout] = b"12345678\n" * 2000
    rest = agent.files[stdout][begin:]
    answer, asked = agent.answer, []

    def cut_meanwhile(path: str, query: dict[str, str]) -> tuple[int, bytes]:
        asked.append(query["offset"])
        if len(asked) == 3:
            agent.files[stdout] = head(begin, 7) + bytes(5000) + rest
        return answer(path, query)

    agent.answer = cut_meanwhile  # type: ignore[method-assign]
    chunk = reader.read(launch(agent.url), "fw", "stdout", HEAD_BYTES + 9, 90)
    assert chunk.data == head(begin, 7).decode().rstrip() + "\n" + rest[:90].decode()
    assert (chunk.offset, chunk.next_offset) == (begin, begin + 90)


def test_log_marks_printed_by_a_task_are_not_believed(agent: Agent, reader: Reader) -> None:
    lie = head(1 << 60, 7)[:200]
    agent.files[f"{VIRTUAL}/stdout"] = lie + b"\nrest\n"
    chunk = reader.read(launch(agent.url), "fw", "stdout", 0, 1000)
    assert chunk.data == lie.decode() + "\nrest\n"


def test_bytes_are_read_as_they_are(agent: Agent, reader: Reader) -> None:
    every = bytes(range(256))
    agent.files[f"{VIRTUAL}/stdout"] = every
    assert reader.read_bytes(launch(agent.url), "fw", "stdout", 0, 1000) == (0, every, True, "")
    assert reader.read_bytes(launch(agent.url), "fw", "stdout", -3, 1000) == (253, every[-3:], True, "")


def test_line_of_the_containerizer_is_not_read_before_the_task_begins(agent: Agent, reader: Reader) -> None:
    path, mark = f"{VIRTUAL}/stderr", b"Marked '/' as rslave\n"
    agent.files[path] = mark
    assert reader.read_bytes(launch(agent.url), "fw", "stderr", 0, 1000) == (0, b"", True, "")
    assert reader.read_bytes(launch(agent.url), "fw", "stderr", -100, 1000) == (0, b"", True, "")
    agent.files[path] = b"own\n"
    assert reader.read_bytes(launch(agent.url), "fw", "stderr", 0, 1000) == (0, b"own\n", True, "")
    agent.files[path] = mark + b"of an image\n"
    assert reader.read_bytes(launch(agent.url), "fw", "stderr", 0, 1000) == (0, agent.files[path], True, "")


def test_a_sandbox_that_is_known_by_its_real_path_alone(agent: Agent, reader: Reader) -> None:
    agent.files[f"{REAL}/stdout"] = b"still here\n"
    assert reader.read(launch(agent.url), "fw", "stdout", 0, 100).data == "still here\n"
    assert reader.read(launch(agent.url), "fw", "stdout", -5, 100).data == "here\n"


def test_a_sandbox_that_is_gone(agent: Agent, reader: Reader) -> None:
    with pytest.raises(NotFound, match=r"the sandbox of j\.1 is gone from h1") as error:
        reader.read(launch(agent.url), "fw", "stdout", 0, 100)
    assert "--gc_delay" in error.value.remedy


def test_a_sandbox_that_is_not_there_yet(reader: Reader, agent: Agent) -> None:
    begins = launch(agent.url, TaskState.STARTING)
    with pytest.raises(Refusal, match="has not started on h1") as error:
        reader.read(begins, "fw", "stdout", 0, 100)
    assert error.value.code == "not-started"


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"7", b'{"frameworks": 1}', b'{"frameworks": [{}]}'])
def test_logs_of_something_that_is_no_agent_are_refused(agent: Agent, reader: Reader, answer: bytes) -> None:
    agent.state = answer
    with pytest.raises((Unavailable, NotFound)):
        reader.read(launch(agent.url), "fw", "stdout", 0, 100)


def test_an_agent_that_refuses(agent: Agent, reader: Reader) -> None:
    agent.status = 403
    with pytest.raises(Unavailable, match="the agent h1 does not let the scheduler read: 403"):
        reader.read(launch(agent.url), "fw", "stdout", 0, 100)


def test_an_agent_that_is_away(reader: Reader) -> None:
    with pytest.raises(Unavailable, match=r"the agent h1 at http://127\.0\.0\.1:9 does not answer"):
        reader.read(launch("http://127.0.0.1:9"), "fw", "stdout", 0, 100)


@given(st.binary(max_size=40), st.integers(4, 12))
def test_any_bytes_in_any_pieces_are_the_same_text(content: bytes, length: int) -> None:
    def read(offset: int) -> tuple[str, int]:
        raw = content[offset : offset + length]
        chunk = whole(raw, offset, last=len(raw) < length)
        return chunk.data, chunk.next_offset

    assert pieces(read) == content.decode("utf-8", "replace")


def test_log_lines_have_their_time(agent: Agent, reader: Reader) -> None:
    task = launch(agent.url)
    agent.files[f"{VIRTUAL}/stdout"] = b"x" * 100
    assert reader.times(task, "fw", "stdout") is None, "an executor that notes none"
    agent.files[f"{VIRTUAL}/{TIMES}"] = b"o 40 1000\ne 7 1500\no 90 2000\n"
    times = reader.times(task, "fw", "stdout")
    assert times == [(40, 1.0), (90, 2.0)]
    assert log_times(times, Chunk("", 0, 40), 9.0) == [{"offset": 40, "at": 1.0}]
    later = [{"offset": 90, "at": 2.0}, {"offset": 100, "at": 9.0}]
    assert log_times(times, Chunk("", 40, 100), 9.0) == later, (
        "after the latest note, by the time of the read"
    )
    assert log_times([], Chunk("", 0, 9), 9.0) == [{"offset": 9, "at": 9.0}], "nothing was noted yet"
    assert log_times(None, Chunk("", 0, 9), 9.0) is None
