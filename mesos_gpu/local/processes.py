"""Handles of a cluster's processes: the master and the agents."""

import contextlib
import errno
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

from isolator.agent.http import HttpConnection
from mesos_gpu.adapters.proofs.socket_paths import opened
from mesos_gpu.errors import BadConfiguration, Conflict, Unavailable
from mesos_gpu.libmesos import helpers, program
from mesos_gpu.libmesos.cxx import REFUSED
from mesos_gpu.local import leftovers
from mesos_gpu.local.network import Host
from mesos_gpu.local.secure import Secure

T = TypeVar("T")
#: Signals that do not end a process, so there is no end to wait for.
_PAUSING: Final = (signal.SIGSTOP, signal.SIGCONT)
_RARELY_S: Final = 0.1
_STOPPED: Final = frozenset("TtZX")  # states of threads, as of proc(5)
_LOG_END: Final = 2000  # characters of a log that an error quotes


def poll(what: str, condition: Callable[[], T | None], timeout_s: float = 60, interval_s: float = 0.02) -> T:
    """Call `condition` until it returns a true value, and return that. Its network errors count as "not yet".

    Args:
        what: Description of what is waited for, for the error.
        condition: Function to call.
        timeout_s: Longest wait in seconds.
        interval_s: Seconds between the first calls; they become rarer over time, down to ten calls a second.

    Raises:
        Unavailable: There was no true value in time.
    """
    began_at = time.monotonic()
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            value = condition()
            if value:
                return value
        waited_s = time.monotonic() - began_at
        if waited_s > timeout_s:
            raise Unavailable(f"{what}: not within {timeout_s:g} s", remedy="see its log, then try again")
        time.sleep(min(interval_s * (1 + waited_s), max(interval_s, _RARELY_S)))


def send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal. After SIGSTOP, return once all threads of the process have stopped, or it has ended.

    Raises:
        Unavailable: A thread has not stopped in time.
    """
    process.send_signal(number)
    if number == signal.SIGSTOP:
        poll(f"stop of process {process.pid}", lambda: _is_stopped(process.pid), interval_s=0.001)


def _is_stopped(pid: int) -> bool:
    """Return whether no thread of a process runs, or there is no such process."""
    try:
        stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()
    return all(stat.rpartition(")")[2].split()[0] in _STOPPED for stat in stats)


def is_free(ip: str, port: int) -> bool:
    """Return whether a process could listen on this TCP port now.

    Raises:
        OSError: `ip` is not an address of this machine, or only root may use the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def await_port(ip: str, port: int, timeout_s: float = 20) -> None:
    """Wait until the process that had a port has released it; return also if it did not in time.

    A child that was being forked when its parent was killed has the parent's sockets until it executes its own program.
    If the port is not free, the next process that listens there reports it.
    """
    with contextlib.suppress(Unavailable):
        poll(f"port {port}", lambda: is_free(ip, port), timeout_s)


def get_json(
    ip: str,
    port: int,
    path: str,
    timeout_s: float = 10,
    authorization: str = "",
    tls: ssl.SSLContext | None = None,
    call: Mapping[str, Any] | None = None,
) -> Any:
    """Return a JSON document over HTTP, without any proxy. A POST may be answered without a document: None.

    Args:
        ip: Address or name of the server.
        port: Port of the server.
        path: Path with query.
        timeout_s: Timeout of each network operation in seconds.
        authorization: Value of the Authorization header; "" for none.
        tls: Context for HTTPS; None for HTTP.
        call: Document to post; None for a GET.

    Raises:
        OSError, http.client.HTTPException: The server did not answer, or with another status than 200.
    """
    connection = (
        http.client.HTTPConnection(ip, port, timeout=timeout_s)
        if tls is None
        else http.client.HTTPSConnection(ip, port, timeout=timeout_s, context=tls)
    )
    with contextlib.closing(connection):
        headers = {"Authorization": authorization} if authorization else {}
        if call is None:
            connection.request("GET", path, headers=headers)
        else:
            headers |= {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", path, json.dumps(call), headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"{path}: {response.status} {body[:200]!r}")
        return None if call is not None and not body else json.loads(body)


def get_json_by_socket(path: Path, query: str, timeout_s: float = 10) -> Any:
    """Return a JSON document over HTTP from a Unix socket. Raises what `get_json` raises."""
    with opened(path.parent) as directory:
        connection = HttpConnection(str(directory / path.name), timeout_s)
        with contextlib.closing(connection):
            response = connection.request("GET", query, b"", {})
            body = response.read()
    if response.status != 200:
        raise http.client.HTTPException(f"{query}: {response.status} {body[:200]!r}")
    return json.loads(body)


def private_log(path: Path) -> IO[bytes]:
    """Open a log for appending that only its owner may read, also if it exists with other permissions."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(log, 0o600)
    return os.fdopen(log, "ab")


class Process:
    """A master or agent process. After `kill()`, `start()` starts it again with the same state and port.

    Args:
        module: Module of `mesos_gpu.libmesos` that is the program.
        directory: Directory of the process in the cluster's.
        ip: Address on which it listens.
        port: Port on which it listens.
        flags: Flags of mesos-master or mesos-agent, without dashes.
        host: Host on which it runs; None for this machine itself.

    Attributes:
        url: URL http://ip:port of the process.
        log: File with its standard output and error, appended to at each start.
        secure: Credentials that `get` uses; None for a cluster without authentication.
        answers_in_s: Timeout of `get` in seconds.
    """

    secure: Secure | None = None
    answers_in_s = 10.0

    def __init__(
        self,
        module: str,
        directory: Path,
        ip: str,
        port: int,
        flags: Mapping[str, str],
        host: Host | None = None,
    ) -> None:
        self.name, self.directory, self.ip, self.port = directory.name, directory, ip, port
        self.url = f"http://{ip}:{port}"
        self.log = directory / "log"
        self._module, self._flags, self.host = module, dict(flags), host
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_offset = 0  # of the latest start, in bytes
        self._started_at = 0.0  # seconds since the epoch

    @property
    def pid(self) -> int:
        """Process id of the latest start.

        Raises:
            Unavailable: The process was never started.
        """
        if self._popen is None:
            raise Unavailable(f"{self.name} was not started", remedy="start it")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> Self:
        """Start the process without waiting until it is ready; see `wait`.

        Raises:
            Conflict: The process is running already, or its cluster is stopped.
        """
        if self.running:
            raise Conflict(f"{self.name} is already running", remedy="kill it first")
        if self._popen is not None and self.host is None:
            await_port(self.ip, self.port)
        try:
            with leftovers.editing(self.directory.parent) as record:
                self._started_at = time.time()
                self._popen = self._spawn()
                if identity := leftovers.Identity.of(self._popen.pid):
                    record.processes[self.name] = identity
        except OSError:
            # The record could not be written, as on a full disk: an unrecorded process must not run.
            self.kill()
            raise
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as gate:
            gate.write(program.GO)
        return self

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start a process that waits for GO, so that it runs only after it was recorded.

        If this process is killed before, the child reads the end of the pipe instead and exits.
        """
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o755)  # an agent's sandboxes are below it
        # The agent's data has the environments of tasks, and the files of their images are private.
        for private in ("work/meta", "work/provisioner", "store"):
            (self.directory / private).mkdir(parents=True, exist_ok=True)
            (self.directory / private).chmod(0o700)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MESOS_", "LIBPROCESS_"))}
        own = {"LIBPROCESS_IP": self.ip, "LIBPROCESS_PORT": str(self.port)}
        command = self._command()
        with private_log(self.log) as log:
            self._log_offset = log.tell()
            return subprocess.Popen(
                self.host.inside(command) if self.host else command,
                env={**inherited, **own, leftovers.MARK: str(self.directory.parent)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o022,
            )

    def _command(self) -> list[str]:
        """Return the command that runs the program after it has read GO."""
        return helpers.gated_command(self._module, self._flags)

    def checked(self) -> Self:
        """Return self if the process is running.

        Raises:
            BadConfiguration: It refused its flags; the message has Mesos' text.
            Unavailable: It is not running; the message has the end of its log.
        """
        if self.running:
            return self
        code = None if self._popen is None else self._popen.returncode
        log = self._log_since_start()
        if why := re.findall(rf"^{REFUSED}(.*)", log, re.MULTILINE):
            raise BadConfiguration(f"{self.name} does not start: {why[-1]}", remedy="correct its flags")
        if why := re.findall(r"EXIT with status \d+: (.*)", log):
            raise Unavailable(f"{self.name} ended: {why[-1]}", remedy="fix the reported error, often a flag")
        raise Unavailable(
            f"{self.name} ended with exit code {code}; its log ends with:\n{log[-_LOG_END:]}",
            remedy="fix the error in its last lines",
        )

    def _log_since_start(self) -> str:
        if self._popen is None:
            return ""
        with self.log.open(errors="replace") as file:
            file.seek(self._log_offset)
            return file.read()

    def wait(self, timeout_s: float = 60) -> Self:
        """Wait until the process is ready: a master leads, an agent has recovered and is registered with the master.

        Raises:
            BadConfiguration, Unavailable: The process ended, or is not ready in time.
        """
        try:
            poll(f"{self.name} {self.url}", lambda: self.checked().ready(), timeout_s)
        except Unavailable as error:
            if not self.running:
                raise
            end = self._log_since_start()[-_LOG_END:]
            raise Unavailable(f"{error.what}; its log ends with:\n{end}", remedy=error.remedy) from None
        return self

    def ready(self) -> bool:
        """Return whether the process serves requests. May raise what `get` raises."""
        raise NotImplementedError

    def restart(self) -> Self:
        """Kill the process by SIGKILL, start it again and wait for it."""
        self.kill()
        return self.start().wait()

    def get(self, path: str) -> Any:
        """Request a JSON document from the process. Raises what `get_json` raises."""
        authorization = self.secure.credential().header if self.secure else ""
        return get_json(self.ip, self.port, path, self.answers_in_s, authorization)

    def send(self, number: int) -> None:
        """Send a signal if the process was started."""
        if self._popen is not None:
            send_signal(self._popen, number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and, unless that is SIGSTOP or SIGCONT, wait until the process has ended."""
        self.send(number)
        if self._popen is not None and number not in _PAUSING:
            self._popen.wait(30)


class Master(Process):
    """A master process: the only master, or one of those that elect a leader."""

    def __init__(
        self, directory: Path, ip: str, port: int, flags: Mapping[str, str], host: Host | None = None
    ) -> None:
        super().__init__("master", directory, ip, port, flags, host)

    def ready(self) -> bool:
        """Return whether this master leads and has recovered its registry: only then operators' calls are answered.

        Its work_dir is compared because another master may have the port, before this one fails for that reason.
        """
        authorization = self.secure.credential().header if self.secure else ""
        version = {"type": "GET_VERSION"}
        get_json(self.ip, self.port, "/api/v1", self.answers_in_s, authorization, call=version)
        return bool(self.get("/flags")["flags"]["work_dir"] == self._flags["work_dir"])

    def led_since(self) -> float:
        """Return when it began to lead, in seconds since the epoch; for an only master, when it was started."""
        return float(self.state()["elected_time"]) if "zk" in self._flags else self._started_at

    def state(self) -> Any:
        """Return the master's /state."""
        return self.get("/state")

    def agents(self) -> list[Any]:
        """Return the agents in the master's /slaves; only a leader answers."""
        return list(self.get("/slaves")["slaves"])


class Agent(Process):
    """An agent process.

    Args:
        leader: Function that returns the leading master, or None if no master leads.
        directory: Directory of the agent in the cluster's.
        ip: Address on which it listens.
        port: Port on which it listens.
        flags: Flags of mesos-agent, without dashes.
        host: Host on which it runs; None for this machine itself.
    """

    def __init__(
        self,
        leader: Callable[[], Master | None],
        directory: Path,
        ip: str,
        port: int,
        flags: Mapping[str, str],
        host: Host | None = None,
    ) -> None:
        super().__init__("agent", directory, ip, port, flags, host)
        self._leader = leader
        self._latest = directory / "work/meta/slaves/latest"  # the agent's own link, to .../slaves/<id>

    @property
    def cgroup_root(self) -> str:
        """Name of the agent's top cgroup in each hierarchy; only the launcher linux creates it."""
        return self._flags["cgroups_root"]

    @property
    def id(self) -> str:
        """Id of the agent from its own files, known also while it or the master is down.

        Raises:
            Unavailable: The agent has not registered yet.
        """
        if not self._latest.is_symlink():
            raise Unavailable(
                f"{self.name} has not registered yet, so it has no id", remedy="wait until it has"
            )
        return self._latest.readlink().name

    def info(self) -> Any:
        """Return the agent's entry in the leading master's /slaves; None unless it is active there."""
        leader = self._leader()
        return self._info(leader) if leader else None

    def _info(self, leader: Master) -> Any:
        address = f"@{self.ip}:{self.port}"
        return next((a for a in leader.agents() if a["active"] and a["pid"].endswith(address)), None)

    def ready(self) -> bool:
        """Return whether the agent has registered since it was started and since the master began to lead.

        The master may need some time to notice that an agent was killed, and shows it as active until then; and it
        shows a new agent shortly before the agent knows its id.
        """
        leader = self._leader()
        if leader is None or not (info := self._info(leader)) or not self._latest.is_symlink():
            return False
        since = max(self._started_at, leader.led_since())
        return bool(max(info["registered_time"], info.get("reregistered_time", 0)) > since)
