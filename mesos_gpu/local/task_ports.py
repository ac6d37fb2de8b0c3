"""Ports that the agents of one cluster offer to tasks. No two clusters of a machine offer the same ones."""

import logging
import os
import socket
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from isolator.host import port_ranges

logger = logging.getLogger(__name__)
#: First and last port of each block, each enough for 1,000 instances of apps. The first block is Mesos' default; the
#: others are below the usual ephemeral range and do not overlap the ports of the clusters' own processes.
_BLOCKS: Final[Sequence[tuple[int, int]]] = (
    (31000, 32000),
    *((first, first + 999) for first in range(22000, 9000, -1000)),
)
#: First and last port of each block of fixed ports.
_FIXED_BLOCKS: Final[Sequence[tuple[int, int]]] = tuple(
    (first, first + 19) for first in range(9000, 9500, 20)
)


def ephemeral_ports() -> tuple[port_ranges.Range, ...]:
    """Return the ports that this machine's kernel chooses for sockets bound to port 0."""
    settings = Path("/proc/sys/net/ipv4")
    texts = [(settings / name).read_text() for name in ("ip_local_port_range", "ip_local_reserved_ports")]
    return port_ranges.ephemeral(*texts)


def _usable_blocks() -> Sequence[tuple[int, int]]:
    """Return the blocks outside the kernel's ephemeral range; all blocks if none is outside."""
    chosen = ephemeral_ports()
    if usable := [block for block in _BLOCKS if not port_ranges.common([block], chosen)]:
        return usable
    logger.warning(
        "tasks that bind port 0 may get ports of other tasks, because the kernel chooses from %s; to prevent that: "
        "sysctl -w net.ipv4.ip_local_reserved_ports=9000-9499,31000-32000",
        port_ranges.text_of(chosen),
    )
    return _BLOCKS


def hold_first(prefix: str, numbers: Sequence[int]) -> tuple[int, int] | None:
    """Hold the first of some numbers that no other process in this network namespace holds under a prefix.

    Args:
        prefix: Name of what the numbers stand for, such as a kind of ports.
        numbers: Numbers to try, in order.

    Returns:
        The index of the number, and a file descriptor: the number is free again when it is closed. None if other
        processes hold all numbers.
    """
    for at, number in enumerate(numbers):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0{prefix}-{number}")
        except OSError:
            name.close()
        else:
            return at, name.detach()
    return None


class TaskPorts:
    """Blocks of ports that the agents of one cluster offer, held as long as this object lives and is not closed.

    They are held by names in the network namespace, so they are free again however their process ends.

    Attributes:
        block: First and last port of the block that the agents divide between them.
        fixed: First and last port of the block that every agent offers: a task that listens on its host's own address
            can use the same port on each agent.
    """

    def __init__(self) -> None:
        """Hold the first blocks that no other cluster of this machine holds; share the first if all are held."""
        self._held: list[weakref.finalize[..., TaskPorts]] = []
        self.block = self._hold("mesos-gpu-task-ports", _usable_blocks())
        self.fixed = self._hold("mesos-gpu-fixed-ports", _FIXED_BLOCKS)

    def _hold(self, prefix: str, blocks: Sequence[tuple[int, int]]) -> tuple[int, int]:
        block = hold_first(prefix, [first for first, _ in blocks])
        if block is None:
            return blocks[0]
        at, descriptor = block
        self._held.append(weakref.finalize(self, os.close, descriptor))
        return blocks[at]

    def close(self) -> None:
        """Release the blocks for other clusters."""
        for release in self._held:
            release()

    def share(self, number: int, agents: int) -> tuple[int, int]:
        """Return the first and last port of one agent's own part of the block.

        All tasks listen on this machine, so tasks of two agents must not use the same ports. An agent that is added
        later shares its part with an earlier one.

        Args:
            number: Number of the agent, from 1.
            agents: Number of agents at the start.
        """
        first, last = self.block
        width = max((last - first + 1) // agents, 1)
        begin = first + (number - 1) % agents * width
        return begin, begin + width - 1
