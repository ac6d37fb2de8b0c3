"""Ports of the local cluster's processes, when one is started again."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mesos_gpu.errors import Unavailable
from mesos_gpu.local import own_ports, processes
from mesos_gpu.local.own_ports import OwnPorts, free_port
from tests.conftest import own_block


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


@pytest.fixture
def blocks() -> Iterator[list[range]]:
    """Two blocks of ports that nothing uses: above those that the kernel or a cluster chooses."""
    with own_block("high ports", range(61000, 65000), 8) as ports:
        yield [ports[:4], ports[4:]]


def test_programs_choose_from_blocks_of_their_own(blocks: list[range]) -> None:
    one, other = OwnPorts(blocks), OwnPorts(blocks)
    assert [one.choose("127.0.0.1"), one.choose("127.0.0.1")] == [*blocks[0][:2]]
    assert [other.choose("127.0.0.1"), other.choose("127.0.0.1")] == [*blocks[1][:2]]


def test_a_chosen_port_is_chosen_again_after_all_others(blocks: list[range]) -> None:
    own = OwnPorts(blocks[:1])
    assert [own.choose("127.0.0.1") for _ in range(5)] == [*blocks[0], blocks[0][0]]


def test_ports_in_a_row_are_chosen_from_a_further_block_where_one_has_too_few(blocks: list[range]) -> None:
    apart = [blocks[0][:2], blocks[1]]
    own = OwnPorts(apart)
    assert own.choose("127.0.0.1", width=3) == blocks[1][0]
    assert own.choose("127.0.0.1") == blocks[1][3]
    assert own.choose("127.0.0.1", width=5) is None


def test_ports_that_are_taken_or_listened_at_are_not_chosen(blocks: list[range]) -> None:
    own = OwnPorts(blocks[:1])
    with socket.create_server(("127.0.0.1", blocks[0][1])):
        assert own.choose("127.0.0.1", taken={blocks[0][0]}) == blocks[0][2]
        assert own.choose("127.0.0.1", taken=blocks[0]) is None


def test_a_program_shares_ports_where_others_hold_all(blocks: list[range]) -> None:
    others = [OwnPorts(blocks), OwnPorts(blocks)]
    assert [other.choose("127.0.0.1") for other in others] == [block[0] for block in blocks]
    every = {port for block in blocks for port in block}
    late = OwnPorts(blocks)
    assert {late.choose("127.0.0.1") for _ in every} == every


def test_a_forked_child_chooses_other_ports_than_its_parent() -> None:
    port = free_port()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # whatever fails: it must not go on as a second process of pytest
        try:
            os.write(writer, str(free_port()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        chosen = int(file.read())
    os.waitpid(pid, 0)
    (block,) = [each for each in own_ports._BLOCKS if port in each]
    assert chosen not in block
