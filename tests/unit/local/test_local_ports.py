"""Ports of the local cluster's processes, when one is started again."""

import socket
import subprocess
import sys
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


def test_start_waits_for_a_child_that_has_the_sockets_of_the_process_before(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listener.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[listener.fileno()]
    )
    listener.close()
    is_free, looks = processes.is_free, list[bool]()

    def look(ip: str, port: int) -> bool:
        looks.append(is_free(ip, port))
        if len(looks) == 3:
            child.kill()
            child.wait()
        return looks[-1]

    monkeypatch.setattr(processes, "is_free", look)
    processes.await_port("127.0.0.1", port, timeout_s=600)
    assert looks == [False, False, False, True]


def test_a_port_that_stays_in_use_is_left_to_who_listens_next(listener: socket.socket) -> None:
    began_at = time.monotonic()
    processes.await_port("127.0.0.1", listener.getsockname()[1], 0.2)
    assert time.monotonic() - began_at >= 0.2
