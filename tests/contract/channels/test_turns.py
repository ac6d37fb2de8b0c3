"""Channels over TLS: no end of one is written to while it is read, which OpenSSL does not bear."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.sync.client import ClientConnection

from isolator.session.websocket import dial
from mesos_gpu.cli.channel import line
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.wire.channel.frames import MAX_FRAME
from tests.certificates import Authority, context_of
from tests.tls_ends import Calls, ServerEnd, tls_ends

PATH = "/v1/channels/1"


class Scheduler:
    """The scheduler's end of a channel."""

    def __init__(self, end: ServerEnd) -> None:
        self.end, self._protocol = end, ServerProtocol(max_size=MAX_FRAME)

    def accept(self) -> None:
        """Answer the request that opens it."""
        self._protocol.receive_data(self.end.read())
        [request] = self._protocol.events_received()
        assert isinstance(request, Request)
        self._protocol.send_response(self._protocol.accept(request))
        self.end.send(b"".join(self._protocol.data_to_send()))

    def message(self) -> bytes:
        """Wait for a message."""
        while True:
            self._protocol.receive_data(self.end.read())
            for event in self._protocol.events_received():
                return bytes(getattr(event, "data", b""))

    def record(self, message: bytes) -> bytes:
        """Return a message as it is to be sent."""
        self._protocol.send_binary(message)
        return self.end.records(b"".join(self._protocol.data_to_send()))


def test_client_of_a_channel_does_not_ask_while_session_tickets_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_ends(tmp_path) as (client, end):
        calls, handshake, scheduler = Calls(monkeypatch), ClientConnection.handshake, Scheduler(end)

        def later(connection: ClientConnection, *arguments: Any) -> None:
            assert calls.read_begun.wait(60), "session tickets are there"
            handshake(connection, *arguments)

        monkeypatch.setattr(ClientConnection, "handshake", later)
        monkeypatch.setattr(line, "connected", lambda _: client)
        thread = threading.Thread(target=scheduler.accept)
        thread.start()
        channel = line.open_line(
            Reach("https://localhost"), {"path": PATH, "proof": "p", "task_id": "train-00000000.1"}
        )
        thread.join()
        with channel:
            channel.send(b"data")
            assert scheduler.message() == b"data"
            end.line.close()
        assert calls.overlaps == []


def test_host_of_a_channel_does_not_send_while_a_message_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Authority(tmp_path).server()
    calls, got = Calls(monkeypatch), list[bytes]()
    monkeypatch.setenv("MESOS_GPU_SCHEDULER_CACERT", str(tmp_path / "Test-CA.pem"))
    schedulers = list[Scheduler]()

    def serve(listener: socket.socket) -> None:
        end = ServerEnd(listener.accept()[0], context_of(made))
        end.shake_hands()
        schedulers.append(Scheduler(end))
        schedulers[0].accept()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        host = dial(f"https://localhost:{listener.getsockname()[1]}", PATH, "p", "", MAX_FRAME)
        thread.join()
    with schedulers[0].end.line as raw:
        record = schedulers[0].record(b"to the host")
        calls.read_begun.clear()
        raw.sendall(record[:7])
        reader = threading.Thread(target=lambda: got.append(host.receive()))
        reader.start()
        assert calls.read_begun.wait(60)
        host.send(b"to the client")
        assert schedulers[0].message() == b"to the client"
        raw.sendall(record[7:])
        reader.join()
        assert (got, calls.overlaps) == ([b"to the host"], [])
        host.close()
