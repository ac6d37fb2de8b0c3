"""A port of a task is connected to at the first of its addresses that answers."""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from isolator.session.inside.forward import connected

ONE, OTHER = (socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.3")


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(sockets: ExitStack, address: str, port: int = 0, most: int = 8) -> socket.socket:
    line = sockets.enter_context(socket.socket())
    line.bind((address, port))
    line.listen(most)
    return line


def silent(sockets: ExitStack) -> int:
    """The port of a listener at ONE that takes no more: the kernel answers nobody who asks for it."""
    port = int(listening(sockets, ONE[1], most=0).getsockname()[1])
    for _ in range(3):
        line = sockets.enter_context(socket.socket())
        line.setblocking(False)
        line.connect_ex((ONE[1], port))
    return port


def test_an_address_that_is_silent_does_not_keep_the_next_one_waiting(sockets: ExitStack) -> None:
    port = silent(sockets)
    listening(sockets, OTHER[1], port)
    line = sockets.enter_context(connected([ONE, OTHER], port, 60.0))
    assert line.getpeername() == (OTHER[1], port)
    assert line.gettimeout() is None


def test_the_first_that_answers_is_taken_after_one_that_refuses(sockets: ExitStack) -> None:
    listener = listening(sockets, OTHER[1])
    line = sockets.enter_context(connected([ONE, OTHER], listener.getsockname()[1]))
    assert line.getpeername()[0] == OTHER[1]


def test_why_the_first_failed_is_told(sockets: ExitStack) -> None:
    port = int(
        listening(sockets, "127.0.0.4").getsockname()[1]
    )  # at another address than those that are asked
    with pytest.raises(ConnectionRefusedError) as refused:
        connected([ONE, OTHER], port)
    assert refused.value.errno == errno.ECONNREFUSED
    with pytest.raises(OSError, match="there is no address"):
        connected([], port)


def test_all_that_are_silent_have_one_time_limit_together(sockets: ExitStack) -> None:
    port, began_at = silent(sockets), time.monotonic()
    with pytest.raises(TimeoutError):
        connected([ONE] * 50, port, 0.3)
    assert time.monotonic() - began_at >= 0.3
