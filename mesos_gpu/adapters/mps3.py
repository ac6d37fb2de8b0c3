"""MPS by protocol 3: drivers from 615 on. A server for the user, a namespace for each task, both limits on each.

A task's namespace is the directory that it can reach; its own variables cannot widen it. `default`, which nobody is
given, has the least. The daemon writes nothing back: who calls keeps the settings, and sets them again.
Source: NVIDIA's MPS documentation of release 615. No binary of it was to be had: tried with a fake only.
"""

import csv
import hashlib
from collections.abc import Mapping
from typing import Final

from mesos_gpu.adapters.mps_control import Client, Control, Disobeyed, Limits, Server, whole_mib
from mesos_gpu.model.ids import GpuId

NAME: Final = "domain"  # of the server; names are of [a-z0-9_], 64 at most
DEFAULT: Final = "default"  # the namespace that each server has from the start
LEAST: Final = Limits(10, 1024)  # of that one
_AS_CSV: Final = "--format=csv"  # a table for people cuts pids of 7 digits


class Mps3:
    """`Mps` by protocol 3."""

    def __init__(self, control: Control) -> None:
        """Nothing is asked yet."""
        self.control = control

    def daemon(self, most: Limits) -> tuple[tuple[str, ...], dict[str, str]]:
        """In the foreground; the variable goes before the option."""
        return ("-f", "-p", "3"), {"CUDA_MPS_PROTOCOL_VERSION": "3"}

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Make the server, and see that it lives: one for a card that is not there is made, and ends at once."""
        if not self._rows("server list"):
            self.control.ask(f"server create {NAME} --uid={uid} --allowed-devices={gpu}")
        if not self._rows("server list"):
            raise Disobeyed(
                f"the MPS daemon at {self.control.pipes} has no server for {gpu}",
                remedy="see its log, and that the card is there",
            )
        self._limit(DEFAULT, LEAST)

    def admit(self, task: str, limits: Limits) -> None:
        """Make the task's namespace, or set it."""
        self._limit(namespace_of(task), limits)

    def client(self, task: str, limits: Limits) -> Client:
        """Only the directory of its namespace: the daemon's percentage overrides the client's variable."""
        return Client(f"{NAME}/{namespace_of(task)}")

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """Compare each namespace."""
        for name, limits in {
            DEFAULT: LEAST,
            **{namespace_of(task): own for task, own in tasks.items()},
        }.items():
            self._see(name, limits)

    def servers(self) -> tuple[Server, ...]:
        """Read the table of servers."""
        return tuple(
            Server(int(row["pid"]), row.get("status", "").upper() == "FAULT")
            for row in self._rows("server list")
        )

    def clients(self, server: int) -> tuple[int, ...]:
        """Read the table of clients; the daemon has one server."""
        return tuple(int(row["pid"]) for row in self._rows("client list"))

    def terminate(self, server: int, client: int) -> None:
        """Drain it, then let it go."""
        self.control.ask(f"client terminate {client}")

    def _limit(self, name: str, limits: Limits) -> None:
        verb = "set" if name in {row["name"] for row in self._namespaces()} else "create"
        memory = "" if limits.memory_mib is None else f" --pinned-memory-limit={whole_mib(limits)}"
        self.control.ask(
            f"namespace {verb} {name} --server={NAME} --active-thread-percentage={limits.percent}{memory}"
        )
        self._see(name, limits)

    def _see(self, name: str, limits: Limits) -> None:
        for row in self._namespaces():
            if row["name"] == name and _same(row, limits):
                return
        raise Disobeyed(
            f"the namespace {name} of the MPS daemon at {self.control.pipes} does not have the limits that were set",
            remedy="see its log; the task is not started",
        )

    def _namespaces(self) -> list[dict[str, str]]:
        return self._rows(f"namespace list --server={NAME}")

    def _rows(self, command: str) -> list[dict[str, str]]:
        """A table with its first line as names, in lower case with underscores."""
        lines = list(csv.reader(self.control.ask(f"{command} {_AS_CSV}"), skipinitialspace=True))
        if not lines:
            return []
        names = [name.strip().lower().replace(" ", "_").replace("-", "_") for name in lines[0]]
        return [dict(zip(names, map(str.strip, line), strict=False)) for line in lines[1:] if line]


def namespace_of(task: str) -> str:
    """The name of a task's namespace: task ids have characters that names may not."""
    return f"task_{hashlib.sha256(task.encode()).hexdigest()[:16]}"


def _same(row: Mapping[str, str], limits: Limits) -> bool:
    percent = row.get("active_thread_percentage", "").rstrip("%").strip()
    memory = row.get("pinned_memory_limit", "")
    return percent in (str(limits.percent), f"{float(limits.percent):.1f}") and (
        limits.memory_mib is None or memory == whole_mib(limits)
    )
