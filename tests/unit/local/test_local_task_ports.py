"""Ports of tasks: clusters of one machine do not offer the same ones."""

import os
import subprocess
import sys

import pytest

from mesos_gpu.local import own_ports, task_ports
from mesos_gpu.local.task_ports import TaskPorts


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Two blocks that no cluster of this machine would take."""
    begin = 1_000_000 + os.getpid() * 1000
    own = [(begin, begin + 99), (begin + 100, begin + 199)]
    monkeypatch.setattr(task_ports, "_BLOCKS", own)
    monkeypatch.setattr(task_ports, "_FIXED_BLOCKS", [(begin + 200, begin + 219), (begin + 220, begin + 239)])
    return own


def test_agents_share_a_block_without_meeting(blocks: list[tuple[int, int]]) -> None:
    block = TaskPorts()
    shares = [block.share(number, 3) for number in (1, 2, 3)]
    ports = [port for first, last in shares for port in range(first, last + 1)]
    assert len(ports) == len(set(ports)) == 99
    assert blocks[0][0] <= min(ports) <= max(ports) <= blocks[0][1]
    assert block.share(4, 3) == shares[0], "one that is added later shares with an earlier one"
    block.close()


def test_each_cluster_has_ports_for_1_000_instances_that_nothing_else_is_given() -> None:
    assert min(last - first + 1 for first, last in task_ports._BLOCKS) >= 1000
    given = [*task_ports._BLOCKS, *task_ports._FIXED_BLOCKS, (own_ports._PORTS[0], own_ports._PORTS[-1])]
    ports = [port for first, last in given for port in range(first, last + 1)]
    assert len(ports) == len(set(ports))


def test_two_clusters_have_different_blocks_and_give_them_back(blocks: list[tuple[int, int]]) -> None:
    first, second, third = TaskPorts(), TaskPorts(), TaskPorts()
    assert [each.block for each in (first, second, third)] == [*blocks, blocks[0]], "the last shares"
    fixed = task_ports._FIXED_BLOCKS
    assert [each.fixed for each in (first, second, third)] == [*fixed, fixed[0]]
    third.close()
    first.close()
    first.close()
    again = TaskPorts()
    assert (again.block, again.fixed) == (blocks[0], fixed[0]), "they are free again"
    again.close()
    second.close()


def test_a_block_is_free_again_however_its_process_ended(blocks: list[tuple[int, int]]) -> None:
    code = (
        "import os; from mesos_gpu.local import task_ports; "
        f"task_ports._BLOCKS = {blocks}; task_ports._FIXED_BLOCKS = {task_ports._FIXED_BLOCKS}; "
        "block = task_ports.TaskPorts(); "
        "print(block.block[0], flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    block = TaskPorts()
    assert block.block[0] == int(done.stdout) == blocks[0][0]
    block.close()


def test_no_block_meets_the_ports_that_the_kernel_chooses(
    blocks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_ports, "ephemeral_ports", lambda: ((blocks[0][1], blocks[0][1]),))
    block = TaskPorts()
    assert block.block == blocks[1]
    block.close()
    assert not caplog.messages
    monkeypatch.setattr(task_ports, "ephemeral_ports", lambda: ((1, blocks[1][0]),))
    block = TaskPorts()
    assert block.block == blocks[0], "there is no other"
    block.close()
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=" in caplog.text
