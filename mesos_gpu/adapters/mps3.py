"""MPS by protocol 3: drivers from 615 on. A server for the user, a namespace for each task, both limits on each.

A task's namespace is the directory that it can reach; its own variables cannot widen it. `default`, which nobody is
given, has the least. The daemon writes nothing back: who calls keeps the settings, and sets them again. What the
deletion of a namespace does to its clients is not documented, so none is deleted: it ends with the daemon.
Sources: NVIDIA's MPS documentation of release 615, "MPS v3 Interface" and "MPS v3 Namespaces". No binary of it was to
be had: tried with a fake only.
"""

import contextlib
import csv
import hashlib
import re
from collections.abc import Mapping
from typing import Final

from mesos_gpu.adapters.mps_control import PROTOCOL, Client, Control, Disobeyed, Limits, Server, whole_mib
from mesos_gpu.model.ids import GpuId

NAME: Final = "domain"  # of the server; names are of [a-z0-9_], 64 at most
DEFAULT: Final = "default"  # the namespace that each server has from the start
MIN: Final = Limits(10, 1024)  # of that one
_AS_CSV: Final = "--format=csv,noheader"  # a table for people cuts pids of 7 digits
#: The first columns of each list: the documented ones, in the order of the documented examples.
_SERVER: Final = ("name", "uid", "pid", "status")
_NAMESPACE: Final = ("name", "server", "server-status", "pinned-memory-limit", "active-thread-percentage")
_CLIENT: Final = ("pid", "server", "device", "namespace")
_MIB: Final[Mapping[str, float]] = {"K": 1 / 1024, "M": 1, "G": 1024}


class Mps3:
    """`Mps` by protocol 3."""

    def __init__(self, control: Control) -> None:
        """Nothing is asked yet."""
        self.control = control

    def daemon(self, most: Limits, *, across_users: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        """In the foreground; the variable goes before the option. For all users it takes servers of root only."""
        return ("-f", "-p", "3", *(("-m",) if across_users else ())), {PROTOCOL: "3"}

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Make the server, and see that it lives: one for a card that is not there is made, and ends at once."""
        if not self._servers():
            self.control.call("server", "create", NAME, f"--uid={uid}", f"--allowed-devices={gpu}")
        if not self._servers():
            raise Disobeyed(
                f"the MPS daemon at {self.control.pipes} has no server for {gpu}",
                remedy="see its log, and that the card is there",
            )
        self._limit(DEFAULT, MIN)

    def admit(self, task: str, limits: Limits) -> None:
        """Make the task's namespace, or set it."""
        self._limit(namespace_of(task), limits)

    def client(self, task: str, limits: Limits) -> Client:
        """Only the directory of its namespace: the daemon's percentage overrides the client's variable."""
        return Client(f"{NAME}/{namespace_of(task)}")

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """Compare each namespace."""
        for name, limits in {
            DEFAULT: MIN,
            **{namespace_of(task): own for task, own in tasks.items()},
        }.items():
            self._see(name, limits)

    def quit(self, grace_s: float) -> None:
        """End it at once, with its servers."""
        self.control.call("-q")

    def servers(self) -> tuple[Server, ...]:
        """Read the table of servers. Its word for a fault is not documented: without that of protocol 2 it is the log's
        turn to say."""
        return tuple(
            Server(int(row["pid"]), True if row["status"].upper() == "FAULT" else None)
            for row in self._servers()
            if row["pid"].isdecimal()  # none while it is not running
        )

    def clients(self, server: int) -> tuple[int, ...]:
        """Read the table of clients; the daemon has one server of ours."""
        rows = self._rows(_CLIENT, "client", "list", f"--server={NAME}")
        return tuple(int(row["pid"]) for row in rows if row["pid"].isdecimal())

    def terminate(self, server: int, client: int) -> None:
        """Drain it, then let it go."""
        with contextlib.suppress(Disobeyed):  # it is not there any more
            self.control.call("client", "terminate", str(client))

    def _limit(self, name: str, limits: Limits) -> None:
        if name not in {row["name"] for row in self._namespaces()}:
            self.control.call("namespace", "create", name, f"--server={NAME}")
        memory = () if limits.memory_mib is None else (f"--pinned-memory-limit={whole_mib(limits)}",)
        percent = f"--active-thread-percentage={limits.percent}"
        self.control.call("namespace", "set", name, f"--server={NAME}", percent, *memory)
        self._see(name, limits)

    def _see(self, name: str, limits: Limits) -> None:
        for row in self._namespaces():
            if row["name"] == name and _same(row, limits):
                return
        raise Disobeyed(
            f"the namespace {name} of the MPS daemon at {self.control.pipes} does not have the limits that were set",
            remedy="see its log; the task is not started",
        )

    def _servers(self) -> list[dict[str, str]]:
        return [row for row in self._rows(_SERVER, "server", "list") if row["name"] == NAME]

    def _namespaces(self) -> list[dict[str, str]]:
        return self._rows(_NAMESPACE, "namespace", "list", f"--server={NAME}")

    def _rows(self, columns: tuple[str, ...], *command: str) -> list[dict[str, str]]:
        """A table, by the names of its first columns; what has fewer is words for people."""
        lines = csv.reader(self.control.call(*command, _AS_CSV), skipinitialspace=True)
        return [
            dict(zip(columns, map(str.strip, line), strict=False))
            for line in lines
            if len(line) >= len(columns)
        ]


def namespace_of(task: str) -> str:
    """The name of a task's namespace: task ids have characters that names may not."""
    return f"task_{hashlib.sha256(task.encode()).hexdigest()[:16]}"


def _same(row: Mapping[str, str], limits: Limits) -> bool:
    percent = row["active-thread-percentage"].rstrip("%").strip()
    return percent in (str(limits.percent), f"{float(limits.percent):.1f}") and (
        limits.memory_mib is None or _is_shown(limits.memory_mib, row["pinned-memory-limit"])
    )


def _is_shown(memory_mib: int, text: str) -> bool:
    """Whether a limit reads like that: as it was set; or in a larger unit, of which there are only whole ones."""
    shown = re.fullmatch(r"(\d+)([KMG])", text)
    if shown is None:
        return False
    unit_mib = _MIB[shown[2]]
    return (
        int(shown[1]) == memory_mib / unit_mib if unit_mib <= 1 else int(shown[1]) == memory_mib // 1024 > 0
    )
