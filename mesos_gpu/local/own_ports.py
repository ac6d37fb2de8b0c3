"""Ports of the clusters' own processes.

No two programs of a machine choose the same ports, because a port is chosen before its process listens there, and must
still be free when the process is restarted.
"""

import os
import random
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from mesos_gpu.errors import Unavailable
from mesos_gpu.local.processes import is_free
from mesos_gpu.local.task_ports import hold_first

#: Below the ephemeral range, and apart from the ports of tasks (`task_ports`).
_PORTS: Final = range(23000, 31000)
_BLOCKS: Final = tuple(_PORTS[at : at + 400] for at in range(0, len(_PORTS), 400))


class OwnPorts:
    """Blocks of ports that no other program chooses from.

    They are held by names in the network namespace as long as this object lives, so they become free however its
    process ends.

    Args:
        blocks: Blocks to hold as needed, in this order.
    """

    def __init__(self, blocks: Iterable[Sequence[int]]) -> None:
        self.pid = os.getpid()
        self._others, self._held, self._next = list(blocks), list[int](), 0
        self._every = [port for block in self._others for port in block]

    def choose(self, ip: str, taken: Collection[int] = (), width: int = 1) -> int | None:
        """Return the first of `width` successive free ports, none of them in `taken`; None if too few are free.

        Ports are reused as late as possible.

        Raises:
            OSError: `ip` is not an address of this machine.
        """
        while True:
            for _ in range(len(self._held)):
                port = self._held[self._next]
                row = range(port, port + width)
                self._next = (self._next + 1) % len(self._held)
                if all(
                    candidate in self._held and candidate not in taken and is_free(ip, candidate)
                    for candidate in row
                ):
                    self._next = (self._next + width - 1) % len(self._held)
                    return port
            if not self._hold_more():
                return None

    def _hold_more(self) -> bool:
        """Hold one more block; if other programs hold all blocks, share every port with them."""
        block = hold_first("mesos-gpu-own-ports", [block[0] for block in self._others])
        if block is not None:
            at, descriptor = block
            weakref.finalize(self, os.close, descriptor)
            self._next = len(self._held)
            self._held += self._others[at]
            del self._others[: at + 1]
            return True
        self._others.clear()
        if self._held:
            return False
        self._held = self._every
        self._next = random.SystemRandom().randrange(len(self._held))
        return True


_own = OwnPorts(_BLOCKS)


def free_port(ip: str = "127.0.0.1", taken: Collection[int] = (), width: int = 1) -> int:
    """Return a TCP port that is free, and that no other program chooses while this process lives.

    Args:
        ip: Address of this machine.
        taken: Ports that must not be chosen.
        width: Number of successive free ports, of which the first is returned.

    Raises:
        Unavailable: No free port was found.
    """
    global _own
    if _own.pid != os.getpid():  # a forked child must not choose from its parent's blocks
        _own = OwnPorts(_BLOCKS)
    try:
        port = _own.choose(ip, taken, width)
    except OSError as error:
        raise Unavailable(
            f"no free port on {ip}", remedy="check that this is an address of this machine"
        ) from error
    if port is None:
        raise Unavailable(f"no free port on {ip}", remedy="stop unused clusters on this machine")
    return port
