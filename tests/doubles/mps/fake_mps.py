"""A control daemon of MPS without a GPU, by protocol 2 or 3, whose servers and clients a test sets.

`program` writes an executable with the arguments and variables of nvidia-cuda-mps-control: fake_mps_client.py, which
becomes the daemon by running this file. Servers and clients are in `fake.json` beside the sockets, which a test writes
with `play`.

Source of the answers by protocol 2: the daemon of 535.261.03, tried (tests/contract/test_mps.py asks both), and its
manual page; of `get_server_status` NVIDIA's MPS documentation of release 615; by protocol 3 as `Daemon3` says at each.
Lines of logs about faults are strings of libcuda.so of 535.261.03. A second control client waits until the first has
hung up; the daemon of 535 refuses it.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import sys
from typing import Any

REFUSED = "\1"  # first character of a refusal; fake_mps_client.py has a copy

WORDS_OF_FAULT = (
    "Client process {pid} encountered a fatal GPU error.",
    "Server is handling a fatal GPU error.",
)


def program(directory: str, protocol: int, *, multiuser: bool = False) -> str:
    """Write the executable for a protocol into a directory and return its path; `multiuser` for -multiuser-server."""
    path = os.path.join(directory, "nvidia-cuda-mps-control")
    with open(path, "w") as file:
        kind = f"{protocol} multiuser" if multiuser else f"{protocol} -"
        python, client = (
            shlex.quote(sys.executable),
            shlex.quote(f"{os.path.abspath(__file__)[:-3]}_client.py"),
        )
        file.write(f'#!/bin/sh\nexec {python} -I -S {client} {kind} "$@"\n')
    os.chmod(path, 0o755)  # nosec B103 # a program that tests of other users start
    return path


def play(pipes: str, **state: Any) -> None:
    """Set the servers and clients of a daemon.

    Args:
        pipes: Directory of the daemon's sockets.
        state: `servers`: state by pid, as text: "ACTIVE", "INITIALIZING" or "FAULT"; `clients`: pairs of server and
            pid; `sticky`: pids of clients that no command ends; `absent`: UUIDs of missing cards; `old`: whether the
            daemon lacks the command for a server's state, as 535; `drained`: path of a file to which the daemon writes
            the pid of each client that it ends while the client's process runs; it outlives the daemon's directory.
    """
    part = os.path.join(pipes, ".fake.json")
    with open(part, "w") as file:
        json.dump(state, file)
    os.replace(part, os.path.join(pipes, "fake.json"))


def seen(pipes: str) -> dict[str, Any]:
    """Return the state that `play` has set, without clients that were ended since."""
    nothing = {"servers": {}, "clients": [], "sticky": [], "absent": [], "old": False, "drained": ""}
    try:
        with open(os.path.join(pipes, "fake.json")) as file:
            return {**nothing, **json.load(file)}
    except FileNotFoundError:
        return nothing


# --- protocol 2


class Daemon2:
    """Commands of the daemon of 535 (protocol 2); answers about servers follow its manual page."""

    def __init__(self, pipes: str, percent: str = "100") -> None:
        """Set the defaults; `percent` is CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of the daemon's environment."""
        self._pipes = pipes
        self._percents: dict[str | None, float] = {None: float(percent)}
        self._memory: dict[tuple[str | None, str], str] = {}

    def answer(self, line: str) -> list[str]:
        """Execute a command and return the lines of the answer."""
        name, *arguments = line.split()
        method = getattr(self, f"_{name}", None)
        if name == "get_server_status" and seen(self._pipes)["old"]:
            method = None
        return [f'Unknown command "{name}"'] if method is None else list(method(*arguments))

    def _get_server_list(self) -> list[str]:
        return list(seen(self._pipes)["servers"])

    def _get_client_list(self, server: str) -> list[str]:
        if server not in seen(self._pipes)["servers"]:
            return [f"Server {server} not found"]
        return [str(pid) for of, pid in seen(self._pipes)["clients"] if str(of) == server]

    def _get_server_status(self, server: str) -> list[str]:
        return [seen(self._pipes)["servers"].get(server, f"Server {server} not found")]

    def _terminate_client(self, server: str, pid: str) -> list[str]:
        if server not in seen(self._pipes)["servers"]:
            return [f"Server {server} not found", f"Server {server} not found!", "1"]
        _let_go(self._pipes, int(pid))
        return ["0"]

    def _set_default_active_thread_percentage(self, text: str) -> list[str]:
        self._set_percent(None, text)
        return self._get_default_active_thread_percentage()

    def _get_default_active_thread_percentage(self) -> list[str]:
        return [f"{self._percents[None]:.1f}"]

    def _set_active_thread_percentage(self, server: str, text: str) -> list[str]:
        self._set_percent(server, text)
        return self._get_active_thread_percentage(server)

    def _get_active_thread_percentage(self, server: str) -> list[str]:
        if server not in seen(self._pipes)["servers"]:
            return [f"Server {server} not found"]
        return [f"{self._percents.get(server, self._percents[None]):.1f}"]

    def _set_percent(self, server: str | None, text: str) -> None:
        number = re.match(r"[0-9.]+", text)
        if number and 0 < float(number[0]) <= 100:
            self._percents[server] = float(number[0])

    def _set_default_device_pinned_mem_limit(self, device: str, text: str) -> list[str]:
        self._memory[None, device] = text
        return []

    def _get_default_device_pinned_mem_limit(self, device: str = "0") -> list[str]:
        return _shown(self._memory.get((None, device)))

    def _set_device_pinned_mem_limit(self, server: str, device: str, text: str) -> list[str]:
        self._memory[server, device] = text
        return []

    def _get_device_pinned_mem_limit(self, server: str, device: str) -> list[str]:
        return _shown(self._memory.get((server, device), self._memory.get((None, device))))

    def _quit(self, *_: str) -> list[str]:
        raise SystemExit(1)


def _shown(text: str | None) -> list[str]:
    """Return a limit as the daemon prints it: in whole GiB or MiB; it drops a fraction and then the unit."""
    number = re.match(r"\d+", text or "")
    if text is None or number is None or int(number[0]) == 0:
        return []
    mib = int(number[0]) * (1024 if text.endswith("G") and "." not in text else 1)
    return [f"{mib // 1024}G" if mib >= 1024 else f"{mib}M"]


# --- protocol 3


class Refused(Exception):
    """A refusal of a command by the daemon of protocol 3, with the reason."""


class Daemon3:
    """Commands of protocol 3: servers with namespaces, and lists as CSV.

    Comments have the source of each answer: [doc] NVIDIA's "MPS v3 Interface" and "MPS v3 Namespaces" of release 615;
    [meas] measurements of others; [guess] our assumption where both say nothing.
    """

    def __init__(self, pipes: str, *, multiuser: bool = False) -> None:
        self._pipes, self._multiuser = pipes, multiuser
        #: By name: uid, cards, and of each namespace percentage and memory.
        self._servers: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {}

    def answer(self, line: str) -> list[str]:
        """Execute a command; return the lines of the answer, or one line with a refusal [guess]."""
        if line == "-q":  # [doc] ends the daemon and all running servers
            raise SystemExit(1)
        module, verb, *arguments = (*line.split(), "", "")
        arguments = [text for text in arguments if text]
        options = dict(text[2:].split("=", 1) for text in arguments if text.startswith("--"))
        names = [text for text in arguments if not text.startswith("--")]
        method = getattr(self, f"_{module}_{verb}", None)
        try:
            if method is None:
                raise Refused(f"unknown command {module} {verb}")
            return list(method(*names, **_as_names(options)))
        except (Refused, TypeError) as error:  # TypeError: an argument that the command does not have
            return [f"{REFUSED}{error}"]

    def _server_create(self, name: str, uid: str, allowed_devices: str) -> list[str]:
        _see_name(name)
        if self._multiuser and uid != "0":
            raise Refused("only --uid=0 is allowed in multiuser mode")  # [doc]
        if set(allowed_devices.split(",")) & set(seen(self._pipes)["absent"]):
            return []  # [meas] it is made, and ends at once
        self._servers[name] = (
            uid,
            allowed_devices,
            {"default": ("100", "")},
        )  # [doc] an implicit default namespace
        os.makedirs(os.path.join(self._pipes, name, "default"), exist_ok=True)  # [doc] a directory for each
        return []

    def _server_list(self, format: str = "table") -> list[str]:
        """[doc] name, uid, pid, status ("Ready"), pipe-directory, allowed-devices, context-ids. [guess] FAULT."""
        states = list(seen(self._pipes)["servers"].items()) or [(str(1000 + len(self._servers)), "Ready")]
        return [
            f"{name},{of[0]},{pid},{state},{self._pipes}/{name},{of[1]},-"
            for (name, of), (pid, state) in zip(self._servers.items(), states, strict=False)
        ]

    def _namespace_create(self, name: str, server: str) -> list[str]:
        """[doc] takes no limits, which a later command sets."""
        _see_name(name)
        self._namespaces(server)[name] = ("100", "")
        os.makedirs(os.path.join(self._pipes, server, name), exist_ok=True)
        return []

    def _namespace_set(
        self,
        name: str,
        server: str,
        active_thread_percentage: str | None = None,
        pinned_memory_limit: str | None = None,
    ) -> list[str]:
        """[doc] percentages are 1 to 100, limits whole numbers with K, M or G. [guess] answers to other values."""
        percent, memory = self._namespaces(server)[name]
        if active_thread_percentage is not None:
            if not 1 <= int(active_thread_percentage) <= 100:
                raise Refused(f"invalid percentage {active_thread_percentage}")
            percent = active_thread_percentage
        if pinned_memory_limit is not None and int(pinned_memory_limit[:-1]):
            memory = pinned_memory_limit
        self._namespaces(server)[name] = (percent, memory)
        return []

    def _namespace_list(self, server: str, format: str = "table") -> list[str]:
        """[doc] name, server, server-status, pinned-memory-limit, active-thread-percentage, client-priority,
        pipe-directory."""
        return [
            f"{name},{server},Ready,{memory or '-'},{percent},0,{self._pipes}/{server}/{name}"
            for name, (percent, memory) in self._namespaces(server).items()
        ]

    def _namespaces(self, server: str) -> dict[str, tuple[str, str]]:
        if server not in self._servers:
            raise Refused(f"no server {server}")
        return self._servers[server][2]

    def _client_list(self, server: str = "", format: str = "table") -> list[str]:
        """[doc] pid, server, device, namespace, command, by example."""
        name = next(iter(self._servers), server)
        return [f"{pid},{name},0,default,python train.py" for _, pid in seen(self._pipes)["clients"]]

    def _client_terminate(self, pid: str) -> list[str]:
        if int(pid) not in {each for _, each in seen(self._pipes)["clients"]}:
            raise Refused(f"no client {pid}")
        _let_go(self._pipes, int(pid))
        return []


def _see_name(name: str) -> None:
    """[doc] lower-case letters, digits and underscores, 64 at most."""
    if not re.fullmatch(r"[a-z0-9_]{1,64}", name):
        raise Refused(f"invalid name {name}")


def _as_names(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in options.items()}


def _let_go(pipes: str, pid: int) -> None:
    state = seen(pipes)
    if pid not in state["sticky"]:
        left = [each for each in state["clients"] if each[1] != pid]
        if state["drained"] and left != state["clients"] and os.path.exists(f"/proc/{pid}"):
            with open(state["drained"], "a") as file:
                file.write(f"{pid}\n")
        play(pipes, **{**state, "clients": left})


# --- both


def serve(pipes: str, protocol: int, *, multiuser: bool = False) -> None:
    """Serve control clients one after the other, without end; `multiuser` for option -multiuser-server."""
    path = os.path.join(pipes, "control")
    if os.path.exists(path):
        os.unlink(path)
    percent = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
    daemon = Daemon3(pipes, multiuser=multiuser) if protocol == 3 else Daemon2(pipes, percent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)  # nosec B103 # as the real daemon's
        listener.listen(16)
        print(f"[… Control {os.getpid()}] Starting control daemon using socket {path}", flush=True)
        while True:
            peer, _ = listener.accept()
            # The client may have hung up.
            with contextlib.suppress(ConnectionError), peer, peer.makefile("rw") as lines:
                for line in lines:
                    answer = daemon.answer(line.strip()) if line.strip() else []
                    lines.write("".join(f"{each}\n" for each in answer) + "\0\n")
                    lines.flush()


if __name__ == "__main__":
    protocol, _, *arguments = sys.argv[1:]
    serve(
        os.environ["CUDA_MPS_PIPE_DIRECTORY"],
        int(protocol),
        multiuser=bool({"-m", "-multiuser-server"} & {*arguments}),
    )
