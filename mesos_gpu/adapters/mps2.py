"""MPS by protocol 2, for drivers before 615: one server for one user; limits apply to clients that connect later.

The daemon's defaults are the maximum for every client; a client's own variables can only lower them. All clients belong
to one user: docs/mps.md describes what tasks of that user can do to each other.
Sources: nvidia-cuda-mps-control(1) of 535; the daemon's answers were observed (tests/contract/test_mps.py).
"""

from collections.abc import Mapping

from mesos_gpu.adapters.mps_control import (
    MEMORY,
    PERCENT,
    Client,
    Control,
    Limits,
    Server,
    SettingsRejected,
    numbers,
    whole_mib,
)
from mesos_gpu.model.ids import GpuId

_CARD = 0  # ordinal of the only card that the daemon sees
_GIB = 1024  # MiB


class Mps2:
    """`Mps` by protocol 2."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def daemon(self, most: Limits, *, across_users: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return arguments for the foreground; the first server has these limits, whichever client triggers its start.

        Source of the option -multiuser-server: NVIDIA's MPS documentation, "Troubleshooting Guide"; the daemons of 535
        and 550 do not have it.
        """
        return ("-f", *(("-multiuser-server",) if across_users else ())), {PERCENT: str(most.percent)}

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Set and verify the defaults, and the limits of running servers; only one call is made if no server runs."""
        answer = self.control.ask(*_settings(most), *_questions(most), "get_server_list")
        defaults = answer[1 : 1 + len(_expected(most))]  # the first line repeats the percentage
        if defaults != _expected(most):
            raise self._disobeyed("its defaults", defaults, most)
        for pid in numbers(answer[1 + len(defaults) :]):
            self.control.ask(*_settings(most, pid))
            self._check_limits(most, pid)

    def admit(self, task: str, limits: Limits) -> None:
        """Do nothing: a client gets its limits by its environment."""

    def client(self, task: str, limits: Limits) -> Client:
        """Return limits by ordinal: an entry with a card that the client cannot see would invalidate all entries."""
        env = {PERCENT: str(limits.percent)}
        if limits.memory_mib is not None:
            env[MEMORY] = f"{_CARD}={whole_mib(limits)}"
        return Client(".", env)

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """Check the defaults, and the limits of each server."""
        for pid in (None, *(server.pid for server in self.servers())):
            self._check_limits(most, pid)

    def _check_limits(self, most: Limits, server: int | None) -> None:
        answer = self.control.ask(*_questions(most, server))
        if answer != _expected(most) and not _gone(answer):
            whose = "its defaults" if server is None else f"those of its server {server}"
            raise self._disobeyed(whose, answer, most)

    def _disobeyed(self, whose: str, answer: list[str], most: Limits) -> SettingsRejected:
        return SettingsRejected(
            f"the limits of the MPS daemon at {self.control.pipes} are not as set: {whose} are "
            f"{' and '.join(answer) or 'nothing'}, not {' and '.join(_expected(most))}",
            remedy="a client of its user has changed them, or the driver does not support them",
        )

    def servers(self) -> tuple[Server, ...]:
        """Return servers with their status, where the daemon supports that query (535 does not)."""
        return tuple(Server(pid, self._fault(pid)) for pid in numbers(self.control.ask("get_server_list")))

    def _fault(self, pid: int) -> bool | None:
        status = " ".join(self.control.ask(f"get_server_status {pid}")).strip().upper()
        return status == "FAULT" if status in ("INITIALIZING", "ACTIVE", "FAULT") else None

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the server's client list."""
        return numbers(self.control.ask(f"get_client_list {server}"))

    def quit(self, grace_s: float) -> None:
        """End the daemon after `grace_s` seconds for its servers."""
        self.control.tell(f"quit -t {grace_s:g}")

    def terminate(self, server: int, client: int) -> None:
        """Terminate the client's work on the server."""
        self.control.ask(f"terminate_client {server} {client}")


def _settings(most: Limits, server: int | None = None) -> list[str]:
    name, pid = _command_prefix("set", server)
    lines = [f"{name}_active_thread_percentage {pid}{most.percent}"]
    if most.memory_mib is not None:
        lines.append(f"{name}_device_pinned_mem_limit {pid}{_CARD} {whole_mib(most)}")
    return lines


def _questions(most: Limits, server: int | None = None) -> list[str]:
    name, pid = _command_prefix("get", server)
    lines = [f"{name}_active_thread_percentage {pid}".rstrip()]
    return lines if most.memory_mib is None else [*lines, f"{name}_device_pinned_mem_limit {pid}{_CARD}"]


def _command_prefix(verb: str, server: int | None) -> tuple[str, str]:
    return (f"{verb}_default", "") if server is None else (verb, f"{server} ")


def _expected(most: Limits) -> list[str]:
    """Return the answer for these limits. The daemon prints whole GiB from 1 GiB on: 1535 MiB reads "1G"."""
    lines = [f"{float(most.percent):.1f}"]
    if most.memory_mib is not None:
        whole = most.memory_mib // _GIB
        lines.append(f"{whole}G" if whole else f"{most.memory_mib}M")
    return lines


def _gone(answer: list[str]) -> bool:
    """Return whether the answer says that the server has ended."""
    return any(line.startswith("Server ") and line.endswith("not found") for line in answer)
