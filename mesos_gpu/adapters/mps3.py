"""MPS by protocol 3, for drivers from 615 on: a server for the user, and a namespace with both limits for each task.

A task can only reach the directory of its own namespace; its variables cannot widen the limits. The namespace
`default`, which no task gets, has minimal limits. The daemon does not store settings: the caller keeps them, and sets
them again. The effect of deleting a namespace on its clients is not documented, so namespaces end with the daemon only.
Sources: NVIDIA's MPS documentation of release 615, "MPS v3 Interface" and "MPS v3 Namespaces". No binary of it was
available: tested with a fake only.
"""

import contextlib
import csv
import hashlib
import re
from collections.abc import Mapping
from typing import Final

from mesos_gpu.adapters.mps_control import (
    PROTOCOL,
    Client,
    Control,
    Limits,
    Server,
    SettingsRejected,
    whole_mib,
)
from mesos_gpu.model.ids import GpuId

NAME: Final = "domain"  # name of the server; names are of [a-z0-9_], 64 characters at most
DEFAULT: Final = "default"  # the namespace that each server has from the start
MIN: Final = Limits(10, 1024)  # limits of the namespace `default`
_AS_CSV: Final = "--format=csv,noheader"  # the table for people truncates pids of 7 digits
#: First columns of each list, as documented, in the order of the documented examples.
_SERVER: Final = ("name", "uid", "pid", "status")
_NAMESPACE: Final = ("name", "server", "server-status", "pinned-memory-limit", "active-thread-percentage")
_CLIENT: Final = ("pid", "server", "device", "namespace")
_MIB: Final[Mapping[str, float]] = {"K": 1 / 1024, "M": 1, "G": 1024}


class Mps3:
    """`Mps` by protocol 3."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def daemon(self, most: Limits, *, across_users: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return arguments for the foreground; the variable would override -p. With -m servers must be root's."""
        return ("-f", "-p", "3", *(("-m",) if across_users else ())), {PROTOCOL: "3"}

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Create the server, and check that it runs: a server for a missing card is created, and exits at once."""
        if not self._servers():
            self.control.call("server", "create", NAME, f"--uid={uid}", f"--allowed-devices={gpu}")
        if not self._servers():
            raise SettingsRejected(
                f"the MPS daemon at {self.control.pipes} has no server for {gpu}",
                remedy="see its log, and check that the card exists",
            )
        self._set_limits(DEFAULT, MIN)

    def admit(self, task: str, limits: Limits) -> None:
        """Create the task's namespace, or change its limits."""
        self._set_limits(namespace_of(task), limits)

    def client(self, task: str, limits: Limits) -> Client:
        """Return the directory of the task's namespace; limits of a namespace override variables of a client."""
        return Client(f"{NAME}/{namespace_of(task)}")

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """Check the limits of each namespace."""
        for name, limits in {
            DEFAULT: MIN,
            **{namespace_of(task): task_limits for task, task_limits in tasks.items()},
        }.items():
            self._check_limits(name, limits)

    def quit(self, grace_s: float) -> None:
        """End the daemon and its servers at once; it takes no grace time."""
        self.control.call("-q")

    def servers(self) -> tuple[Server, ...]:
        """Return the servers from the daemon's table.

        The word of protocol 3 for a fault is not documented: a status other than protocol 2's word leaves it unknown,
        and the log has to tell.
        """
        return tuple(
            Server(int(row["pid"]), True if row["status"].upper() == "FAULT" else None)
            for row in self._servers()
            if row["pid"].isdecimal()  # the column is empty for a server that is not running
        )

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the pids from the table of clients; the daemon has only one server of this program."""
        rows = self._rows(_CLIENT, "client", "list", f"--server={NAME}")
        return tuple(int(row["pid"]) for row in rows if row["pid"].isdecimal())

    def terminate(self, server: int, client: int) -> None:
        """Drain the client, then disconnect it."""
        with contextlib.suppress(SettingsRejected):  # the client is gone
            self.control.call("client", "terminate", str(client))

    def _set_limits(self, name: str, limits: Limits) -> None:
        if name not in {row["name"] for row in self._namespaces()}:
            self.control.call("namespace", "create", name, f"--server={NAME}")
        memory = () if limits.memory_mib is None else (f"--pinned-memory-limit={whole_mib(limits)}",)
        percent = f"--active-thread-percentage={limits.percent}"
        self.control.call("namespace", "set", name, f"--server={NAME}", percent, *memory)
        self._check_limits(name, limits)

    def _check_limits(self, name: str, limits: Limits) -> None:
        for row in self._namespaces():
            if row["name"] == name and _has_limits(row, limits):
                return
        raise SettingsRejected(
            f"the namespace {name} of the MPS daemon at {self.control.pipes} does not have the limits that were set",
            remedy="see its log; the task is not started",
        )

    def _servers(self) -> list[dict[str, str]]:
        return [row for row in self._rows(_SERVER, "server", "list") if row["name"] == NAME]

    def _namespaces(self) -> list[dict[str, str]]:
        return self._rows(_NAMESPACE, "namespace", "list", f"--server={NAME}")

    def _rows(self, columns: tuple[str, ...], *command: str) -> list[dict[str, str]]:
        """Return the rows of a list by names of their first columns; lines with fewer columns are text for people."""
        lines = csv.reader(self.control.call(*command, _AS_CSV), skipinitialspace=True)
        return [
            dict(zip(columns, map(str.strip, line), strict=False))
            for line in lines
            if len(line) >= len(columns)
        ]


def namespace_of(task: str) -> str:
    """Return the name of a task's namespace, a hash, as task ids have characters that names must not have."""
    return f"task_{hashlib.sha256(task.encode()).hexdigest()[:16]}"


def _has_limits(row: Mapping[str, str], limits: Limits) -> bool:
    percent = row["active-thread-percentage"].rstrip("%").strip()
    return percent in (str(limits.percent), f"{float(limits.percent):.1f}") and (
        limits.memory_mib is None or _is_shown(limits.memory_mib, row["pinned-memory-limit"])
    )


def _is_shown(memory_mib: int, text: str) -> bool:
    """Return whether a limit reads like `text`: as it was set, or rounded down to whole GiB."""
    shown = re.fullmatch(r"(\d+)([KMG])", text)
    if shown is None:
        return False
    unit_mib = _MIB[shown[2]]
    return (
        int(shown[1]) == memory_mib / unit_mib if unit_mib <= 1 else int(shown[1]) == memory_mib // 1024 > 0
    )
