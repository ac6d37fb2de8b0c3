"""How commands open a channel: what is asked of the scheduler, how often, and what is told when there is none."""

import json
import os
import queue
import socket
import threading
from types import TracebackType
from typing import Any, Self

import click
import pytest
from websockets.exceptions import ConnectionClosedOK

from mesos_gpu.cli.app import App
from mesos_gpu.cli.channel import line
from mesos_gpu.cli.channel.ports import forward, listening
from mesos_gpu.cli.client import BadAnswer
from mesos_gpu.wire.channel.frames import Frame, Kind, encode
from mesos_gpu.wire.channel.mux import Mark, Record
from mesos_gpu.wire.channel.mux import encode as encode_record
from tests.contract.cli.cli_rig import call
from tests.doubles.fake_rest import FakeRest

JOB = "train-00000000"
CHANNEL = {"path": "/v1/channels/1", "proof": "p", "task_id": f"{JOB}.1"}


@pytest.fixture(autouse=True)
def job(rest: FakeRest) -> None:
    assert rest.add("train") == JOB


def asked(rest: FakeRest) -> list[str]:
    return [what for what, _ in rest.asked if what.startswith("POST ")]


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(401, "unauthorized", 77), (403, "forbidden", 77), (409, "not-running", 73), (503, "unavailable", 69)],
)
def test_channel_that_is_refused_is_asked_for_once(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, status: int, code: str, exit_code: int
) -> None:
    monkeypatch.setenv("MESOS_GPU_TOKEN", "a-token")
    error = {"code": code, "message": "it may not be \x1b joined", "remedy": "ask for the right"}
    rest.fixed[f"POST /v1/jobs/{JOB}/exec"] = status, {"error": error}
    got = call("exec", JOB, "--", "true")
    assert (got.exit_code, asked(rest)) == (exit_code, [f"POST /v1/jobs/{JOB}/exec"]), got.stderr
    assert "it may not be" in got.stderr
    assert "To fix: ask for the right" in got.stderr
    assert "\x1b" not in got.stderr


@pytest.mark.parametrize("answer", [(201, {"path": 1}), (201, [1]), (302, {}), (500, {"words": "no error"})])
def test_an_answer_that_is_none_is_told_and_asked_for_once(rest: FakeRest, answer: tuple[int, Any]) -> None:
    rest.fixed[f"POST /v1/jobs/{JOB}/exec"] = answer
    got = call("exec", JOB, "--", "true")
    assert (got.exit_code, len(asked(rest))) == (BadAnswer.exit_code, 1), got.stderr


def test_channel_without_a_token_advises_a_login(rest: FakeRest) -> None:
    error = {"code": "unauthorized", "message": "who are you?", "remedy": "a header"}
    rest.fixed[f"POST /v1/jobs/{JOB}/exec"] = 401, {"error": error}
    got = call("exec", JOB, "--", "true")
    assert got.exit_code == 77
    assert "mesos-gpu login" in got.stderr


def test_channel_to_an_address_without_a_server_reports_the_refused_connection(rest: FakeRest) -> None:
    rest.stop()
    got = call("exec", JOB, "--", "true")
    assert got.exit_code == 69
    assert "does not answer (connection refused)" in got.stderr


@pytest.mark.parametrize("said", [b"", b"HT"])
def test_channel_request_without_an_answer_is_not_sent_again(said: bytes) -> None:
    """A channel may be open by it; each is on record."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        came: list[bytes] = []

        def cut_off() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    came.append(line.recv(1 << 16))
                    line.sendall(said)

        cutting = threading.Thread(target=cut_off)
        cutting.start()
        got = call("--url", f"http://127.0.0.1:{server.getsockname()[1]}", "exec", JOB, "--", "true")
        server.shutdown(socket.SHUT_RDWR)
        cutting.join()
    assert got.exit_code == 69
    assert [each.partition(b" HTTP")[0] for each in came] == [f"POST /v1/jobs/{JOB}/exec".encode()]
    assert "does not answer (" in got.stderr
    assert "try again: nothing was started in the task" in got.stderr


def test_behind_a_proxy_with_a_path_the_channel_is_there_too(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(url: str, **options: Any) -> None:
        options["sock"].close()
        asked_for.append(url)
        raise ConnectionResetError(104, "it is enough")

    asked_for: list[str] = []
    monkeypatch.setattr(line, "connect", connect)
    monkeypatch.setenv("MESOS_GPU_URL", f"{rest.url.replace('//', '//name:word@')}/gpu")
    rest.fixed[f"POST /gpu/v1/jobs/{JOB}/exec"] = 201, CHANNEL
    got = call("exec", JOB, "--", "true")
    assert got.exit_code == 69, got.stderr
    assert asked(rest) == [f"POST /gpu/v1/jobs/{JOB}/exec"]
    assert asked_for == [f"{rest.url.replace('http', 'ws')}/gpu{CHANNEL['path']}"]


class Line:
    """A channel whose other end has said all that it will say, and waits."""

    def __init__(self, *frames: Frame) -> None:
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for frame in frames:
            self._said.put(encode(frame))

    def recv(self) -> bytes:
        said = self._said.get()
        if said is None:
            self._said.put(None)
            raise ConnectionClosedOK(None, None)
        return said

    def send(self, _message: bytes) -> None:
        """Taken, and not looked at."""

    def close(self) -> None:
        self._said.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def forwarded(rest: FakeRest, monkeypatch: pytest.MonkeyPatch, *frames: Frame) -> int:
    """What `forward` makes of these frames of the other end."""
    rest.fixed[f"POST /v1/jobs/{JOB}/forward"] = 201, CHANNEL
    monkeypatch.setattr(line, "open_line", lambda _reach, _channel: Line(*frames))
    with click.Context(click.Command("port-forward")), listening("127.0.0.1", 0) as listener:
        return forward(App(rest.url), JOB, 0, [(listener, 80)])


def test_tunnel_leaves_nothing_open_at_its_end(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a file which is closed meanwhile fails, or reads another one of its number."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        forwarded(rest, monkeypatch, Frame(Kind.EXIT, numbers=(0,)))
        assert not [each.name for each in threading.enumerate() if each.name in ("channel", "tunnel")]
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # of the connection to the scheduler


def test_a_tunnel_ends_with_the_exit_code_of_its_other_end(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forwarded(rest, monkeypatch, Frame(Kind.EXIT, numbers=(3,))) == 3


@pytest.mark.parametrize(
    "sent",
    [encode_record(Record(Mark.OPEN, 1, number=80)), b"\xff" * 64, json.dumps({}).encode() * 8],
    ids=["of the other side", "no record", "text"],
)
def test_a_tunnel_whose_other_end_sends_what_it_may_not_ends_and_says_so(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    with pytest.raises(BadAnswer, match="data from the task is invalid"):
        forwarded(rest, monkeypatch, Frame(Kind.STDOUT, sent))
