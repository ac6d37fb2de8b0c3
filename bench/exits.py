"""CPU time of processes that end, from the kernel's accounting (taskstats).

It divides the cost of a launch among its processes, however short they live.
"""

import os
import socket
import struct
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

# linux/netlink.h, linux/genetlink.h, linux/taskstats.h
_NETLINK_GENERIC, _SO_RCVBUFFORCE, _SOL_NETLINK_ERROR = 16, 33, 2
_CTRL, _CTRL_GETFAMILY, _CTRL_FAMILY_ID, _CTRL_FAMILY_NAME = 16, 3, 1, 2
_TASKSTATS_GET, _CPUMASK, _TYPE_STATS, _TYPE_AGGR_PID = 1, 3, 3, 4
_HEADERS: Final = 20  # nlmsghdr and genlmsghdr
_BUFFER: Final = 32 << 20  # bytes: records of some 50,000 threads
_POSSIBLE: Final = Path("/sys/devices/system/cpu/possible")
#: Of struct taskstats: its version, sum_exec_runtime in ns, parent, and the process of the thread.
_VERSION, _RUNTIME_NS, _PARENT, _PROCESS = (struct.Struct(f"@{code}") for code in ("H", "Q", "I", "I"))
_AT: Final = {"version": 0, "runtime_ns": 72, "parent": 132, "process": 368}
_OLDEST: Final = 12  # with the process of a thread
_TURN_S: Final = 0.05


class Thread(NamedTuple):
    """A thread that has ended: its process, the parent process, and its CPU time in seconds."""

    process: int
    parent: int
    cpu_s: float


class Parts(NamedTuple):
    """CPU seconds of ended processes below the agents.

    Attributes:
        helpers: Seconds of children of agents: `mesos-containerizer`, from its fork on.
        executors: Seconds of children of helpers, with all their threads.
        tasks: Seconds of children of executors, which become tasks, and of their descendants.
        processes: Number of ended processes.
    """

    helpers: float
    executors: float
    tasks: float
    processes: int

    @classmethod
    def of(cls, threads: Collection[Thread], agents: Collection[int]) -> Self:
        """Add up threads by the depth of their process below an agent."""
        parents = {each.process: each.parent for each in threads}
        below = {process: _depth(process, parents, agents) for process in parents}
        used_s = [0.0, 0.0, 0.0]
        for each in threads:
            if depth := below[each.process]:
                used_s[min(depth, 3) - 1] += each.cpu_s
        return cls(used_s[0], used_s[1], used_s[2], sum(depth > 0 for depth in below.values()))

    def each(self, tasks: int, empty_ms: float) -> dict[str, float]:
        """Return the cost of one task, in CPU milliseconds and in starts of an empty interpreter.

        Args:
            tasks: Number of tasks that were launched and have ended.
            empty_ms: CPU milliseconds of the start of an empty interpreter.
        """
        kinds = {"helper": self.helpers, "executor": self.executors, "task": self.tasks}
        ms = {kind: used_s * 1000 / tasks for kind, used_s in kinds.items()}
        return {
            **{f"{kind}_cpu_ms_per_task": round(value, 1) for kind, value in ms.items()},
            **{f"{kind}_empty_starts_per_task": round(value / empty_ms, 2) for kind, value in ms.items()},
            "processes_per_task": round(self.processes / tasks, 2),
        }


def _depth(process: int, parents: Mapping[int, int], agents: Collection[int]) -> int:
    """Return the depth of a process below an agent, or 0 if no agent is above it."""
    for depth in range(1, len(parents) + 1):
        process = parents.get(process, 0)
        if process in agents:
            return depth
        if not process:
            return 0
    return 0


class Exits:
    """A listener to the ends of all threads of this machine, as a context manager."""

    def __init__(self) -> None:
        """Open a netlink socket for taskstats.

        Raises:
            OSError: This process lacks the privilege, or the kernel keeps no taskstats.
        """
        self._threads: list[Thread] = []
        self._lost, self._over = 0, threading.Event()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        try:
            self._socket.bind((0, 0))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
            family = _family(self._ask(_CTRL, _CTRL_GETFAMILY, _CTRL_FAMILY_NAME, b"TASKSTATS\0"))
            self._ask(family, _TASKSTATS_GET, _CPUMASK, _POSSIBLE.read_text().strip().encode() + b"\0")
            self._socket.settimeout(_TURN_S)
        except BaseException:
            self._socket.close()
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)

    def _ask(self, family: int, command: int, kind: int, value: bytes) -> bytes:
        attribute = (struct.pack("HH", 4 + len(value), kind) + value).ljust((len(value) + 7) & ~3, b"\0")
        body = struct.pack("BBH", command, 1, 0) + attribute
        self._socket.send(struct.pack("IHHII", 16 + len(body), family, 0x5, 0, 0) + body)  # REQUEST, ACK
        answer = self._socket.recv(65536)
        (kind_of_answer,) = struct.unpack_from("H", answer, 4)
        if kind_of_answer == _SOL_NETLINK_ERROR and (number := -struct.unpack_from("i", answer, 16)[0]):
            raise OSError(number, os.strerror(number))
        if family == _CTRL:
            self._socket.recv(65536)  # the acknowledgement, after the answer
        return answer

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        """Collect ended threads until the block is over and no further message comes."""
        while True:
            try:
                self._threads += _ended(self._socket.recv(65536))
            except TimeoutError:
                if self._over.is_set():
                    return
            except OSError:  # ENOBUFS: the buffer was full, and messages were lost
                self._lost += 1

    def parts(self, agents: Collection[int]) -> Parts | None:
        """Return the CPU time of processes that ended below the agents, or None if messages were lost."""
        return None if self._lost else Parts.of(self._threads, agents)


def _attributes(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each netlink attribute, and begin and end of its value."""
    while start + 4 <= end:
        length, kind = struct.unpack_from("HH", message, start)
        if length < 4:
            return
        yield kind, start + 4, start + length
        start += (length + 3) & ~3


def _family(answer: bytes) -> int:
    for kind, begin, _ in _attributes(answer, _HEADERS, len(answer)):
        if kind == _CTRL_FAMILY_ID:
            return int(struct.unpack_from("H", answer, begin)[0])
    raise OSError(95, "the kernel keeps no accounts of processes that end (CONFIG_TASKSTATS)")


def _ended(message: bytes) -> Iterator[Thread]:
    for kind, begin, end in _attributes(message, _HEADERS, len(message)):
        if kind != _TYPE_AGGR_PID:  # records of whole processes have no exact times
            continue
        for inner, at, _ in _attributes(message, begin, end):
            if inner == _TYPE_STATS and _VERSION.unpack_from(message, at)[0] >= _OLDEST:
                yield Thread(
                    _PROCESS.unpack_from(message, at + _AT["process"])[0],
                    _PARENT.unpack_from(message, at + _AT["parent"])[0],
                    _RUNTIME_NS.unpack_from(message, at + _AT["runtime_ns"])[0] / 1e9,
                )


def listener() -> tuple[Exits | None, str]:
    """Return a listener, or None and the reason if there can be none."""
    try:
        return Exits(), ""
    except OSError as error:
        why: Any = error.strerror or error
        return None, f"the kernel's accounts of processes that end (taskstats) are not available: {why}"
