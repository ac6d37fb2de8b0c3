"""An end of a tunnel: records, and what is none of such an end."""

import fcntl
import os
import socket
import sys

import pytest

from mesos_gpu.adapters.tunnel.connection import Connection
from mesos_gpu.adapters.tunnel.tunnel import Tunnel
from mesos_gpu.wire.channel.mux import MAX_DATA, WINDOW, Decoder, Mark, Record, encode

RECORDS = (
    Record(Mark.OPEN, 1, number=80),
    Record(Mark.DATA, 1, bytes(range(256))),
    Record(Mark.CREDIT, (1 << 32) - 1, number=WINDOW),
    Record(Mark.END, 0),
    Record(Mark.CLOSED, 7, b"refused"),
)


def test_tunnel_records_are_independent_of_how_bytes_are_cut() -> None:
    data = b"".join(map(encode, RECORDS))
    decoder = Decoder()
    assert tuple(record for byte in data for record in decoder.feed(bytes([byte]))) == RECORDS
    assert tuple(Decoder().feed(data)) == RECORDS


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 9,
        b"\x09" + bytes(8),
        encode(Record(Mark.DATA, 1, bytes(MAX_DATA + 1))),
        b"\x03" + bytes(7) + b"\x01" + b"x",
        b"\x05" + bytes(7) + b"\x03" + b"xyz",
        encode(Record(Mark.CREDIT, 1, number=WINDOW + 1)),
        encode(Record(Mark.OPEN, 1, number=65536)),
    ],
)
def test_tunnel_record_that_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(Decoder().feed(data))


def carried(*records: Record, port: int | None = None) -> list[Record]:
    """Return the records that an end sends after these and the end of the stream; without `port` it cannot connect.

    Raises:
        ValueError: It does not take them.
    """

    def dial(_: int) -> socket.socket:
        if port is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.create_connection(("127.0.0.1", port))

    (there, up), (down, back) = os.pipe(), os.pipe()
    fcntl.fcntl(up, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        os.write(up, b"".join(map(encode, records)))
        os.close(up)
        Tunnel(there, back, dial=dial).run()
        os.close(back)
        with open(down, "rb", closefd=False) as file:
            return list(Decoder().feed(file.read()))
    finally:
        for each in (there, down, *([back] if sys.exc_info()[0] else [])):
            os.close(each)


def test_tunnel_reports_a_refused_connection_to_the_other_end() -> None:
    assert carried(Record(Mark.OPEN, 5, number=80)) == [
        Record(Mark.CLOSED, 5, b"port 80: Connection refused")
    ]


def test_tunnel_ignores_records_of_a_closed_connection() -> None:
    late = (Record(Mark.DATA, 3, b"x"), Record(Mark.END, 3), Record(Mark.CREDIT, 3, number=1))
    assert carried(*late) == []


def test_tunnel_refuses_data_beyond_the_window() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(1, ours)
        connection.hold(bytes(WINDOW))
        with pytest.raises(ValueError, match="bytes in advance"):
            connection.hold(b"x")


def test_tunnel_connection_number_is_given_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        twice = [Record(Mark.OPEN, 1, number=80)] * 2
        with pytest.raises(ValueError, match="may not open this connection"):
            carried(*twice, port=server.getsockname()[1])
