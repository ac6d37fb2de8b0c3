"""Ports of the local cluster's processes, when one is started again."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from mesos_gpu.errors import Unavailable
from mesos_gpu.local import processes
from mesos_gpu.local.cluster import free_port


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_port_that_is_listened_at_is_not_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not processes.is_free("127.0.0.1", port)
    listener.close()
    assert processes.is_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_no_port_in_use() -> None:
    with pytest.raises(OSError, match="Cannot assign requested address"):
        processes.is_free("192.0.2.1", 0)
    with pytest.raises(Unavailable, match="no free port on 192"):
        free_port("192.0.2.1")


def test_a_start_waits_for_a_child_that_has_the_sockets_of_the_process_before(
    listener: socket.socket,
) -> None:
    port = listener.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[listener.fileno()]
    )
    listener.close()
    assert not processes.is_free("127.0.0.1", port)
    waits = threading.Thread(target=processes.await_port, args=("127.0.0.1", port))
    waits.start()
    waits.join(0.3)
    assert waits.is_alive(), "it waits for the child"
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    waits.join(15)
    assert not waits.is_alive()
    assert processes.is_free("127.0.0.1", port)


def test_a_port_that_stays_in_use_is_left_to_who_listens_next(listener: socket.socket) -> None:
    began_at = time.monotonic()
    processes.await_port("127.0.0.1", listener.getsockname()[1], 0.2)
    assert time.monotonic() - began_at >= 0.2
