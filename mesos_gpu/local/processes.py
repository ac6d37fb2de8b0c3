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
#: These do not end a process, so there is nothing to wait for.
_PAUSING: Final = (signal.SIGSTOP, signal.SIGCONT)
_RARELY_S: Final = 0.1
_STOPPED: Final = frozenset("TtZX")  # states of threads, as of proc(5)
_LOG_END: Final = 2000  # characters of a log that an error quotes


def poll(what: str, condition: Callable[[], T | None], timeout_s: float = 60, interval_s: float = 0.02) -> T:
    """The first true value of `condition()`; its network errors count as "not yet".

    interval_s: Between the first looks; the longer it takes the rarer they are, down to ten a second.

    Raises:
        Unavailable: None came in time.
    """
    began_at = time.monotonic()
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            value = condition()
            if value:
                return value
        waited_s = time.monotonic() - began_at
        if waited_s > timeout_s:
            raise Unavailable(
                f"{what}: not within {timeout_s:g} s", remedy="look into its log, then try again"
            )
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
        stats = [(each / "stat").read_text() for each in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()
    return all(stat.rpartition(")")[2].split()[0] in _STOPPED for stat in stats)


def is_free(ip: str, port: int) -> bool:
    """Whether a process could listen at this TCP port now.

    Raises:
        OSError: Not an address of this machine, or a port of root's.
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
    """Wait until a port is free of the process that had it: a child that this one was making when it was killed has
    its sockets, too, until it runs its own program. In time or not, who listens next says so.
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
    """A JSON document over HTTP, past any proxy. `authorization`: the header's value; "": none. `tls`: over HTTPS.
    `call`: what is posted; None: nothing, it is a GET. A call may be answered without a document: None.

    Raises:
        OSError, http.client.HTTPException: No answer, or one with another status than 200.
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
    """A JSON document over HTTP from what listens on a Unix socket. Raises what `get_json` raises."""
    with opened(path.parent) as directory:
        connection = HttpConnection(str(directory / path.name), timeout_s)
        with contextlib.closing(connection):
            response = connection.request("GET", query, b"", {})
            body = response.read()
    if response.status != 200:
        raise http.client.HTTPException(f"{query}: {response.status} {body[:200]!r}")
    return json.loads(body)


def private_log(path: Path) -> IO[bytes]:
    """A log to append to; only its owner may read it, whoever made it."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(log, 0o600)
    return os.fdopen(log, "ab")


class Process:
    """A master or an agent. After `kill()`, `start()` starts it again on the same state and port.

    url: http://ip:port; log: its standard output and error, appended to at each start.
    secure: whose name `get` uses; None: it asks for none.
    answers_in_s: what `get` takes for no answer after that long.
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
        """Nothing runs yet. `flags`: as for mesos-master or mesos-agent, without the dashes. `host`: on which it runs;
        None: on this one."""
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
            Unavailable: It was never started.
        """
        if self._popen is None:
            raise Unavailable(f"{self.name} was not started", remedy="start it")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> Self:
        """Start it; `wait` waits for it.

        Raises:
            Conflict: It runs already, or its cluster is stopped.
        """
        if self.running:
            raise Conflict(f"{self.name} runs already", remedy="kill it first")
        if self._popen is not None and self.host is None:
            await_port(self.ip, self.port)
        try:
            with leftovers.editing(self.directory.parent) as record:
                self._started_at = time.time()
                self._popen = self._spawn()
                if identity := leftovers.Identity.of(self._popen.pid):
                    record.processes[self.name] = identity
        except OSError:  # it was not noted, as on a full disk: it must not run
            self.kill()
            raise
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as gate:
            gate.write(program.GO)
        return self

    def _spawn(self) -> subprocess.Popen[bytes]:
        """A process that waits for GO, so that it runs only after it was noted. If this process is killed
        before, it reads the end of the pipe instead and exits."""
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o755)  # sandboxes are below an agent's
        # What the agent keeps of tasks has their environments, and the files of their images' containers are theirs.
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
        """What runs when it has read GO."""
        return helpers.gated_command(self._module, self._flags)

    def checked(self) -> Self:
        """Itself.

        Raises:
            BadConfiguration: It refused its flags; with Mesos' text.
            Unavailable: It is not running; with the end of its log.
        """
        if self.running:
            return self
        code = None if self._popen is None else self._popen.returncode
        log = self._log_since_start()
        if why := re.findall(rf"^{REFUSED}(.*)", log, re.MULTILINE):
            raise BadConfiguration(f"{self.name} does not start: {why[-1]}", remedy="correct its flags")
        if why := re.findall(r"EXIT with status \d+: (.*)", log):
            raise Unavailable(f"{self.name} ended: {why[-1]}", remedy="correct what it reports, often a flag")
        raise Unavailable(
            f"{self.name} ended with exit code {code}; its log ends with:\n{log[-_LOG_END:]}",
            remedy="correct what its last lines report",
        )

    def _log_since_start(self) -> str:
        if self._popen is None:
            return ""
        with self.log.open(errors="replace") as file:
            file.seek(self._log_offset)
            return file.read()

    def wait(self, timeout_s: float = 60) -> Self:
        """Wait until it is ready: a master leads, an agent has recovered and the master has it.

        Raises:
            BadConfiguration, Unavailable: It ended, or is not ready in time.
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
        """Whether it serves. May raise what `get` raises."""
        raise NotImplementedError

    def restart(self) -> Self:
        """kill -9, start, wait."""
        self.kill()
        return self.start().wait()

    def get(self, path: str) -> Any:
        """GET a JSON document of it. Raises what `get_json` raises."""
        authorization = self.secure.credential().header if self.secure else ""
        return get_json(self.ip, self.port, path, self.answers_in_s, authorization)

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._popen is not None:
            send_signal(self._popen, number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and, unless that is SIGSTOP or SIGCONT, wait for its end."""
        self.send(number)
        if self._popen is not None and number not in _PAUSING:
            self._popen.wait(30)


class Master(Process):
    """A master: the only one, or one of those that elect a leader."""

    def __init__(
        self, directory: Path, ip: str, port: int, flags: Mapping[str, str], host: Host | None = None
    ) -> None:
        """Nothing runs yet."""
        super().__init__("master", directory, ip, port, flags, host)

    def ready(self) -> bool:
        """Whether it leads and has recovered its registry, for only then its operators' calls are answered; and whether
        it is this one that answers: it fails only later if another master has the port."""
        authorization = self.secure.credential().header if self.secure else ""
        version = {"type": "GET_VERSION"}
        get_json(self.ip, self.port, "/api/v1", self.answers_in_s, authorization, call=version)
        return bool(self.get("/flags")["flags"]["work_dir"] == self._flags["work_dir"])

    def led_since(self) -> float:
        """When it began to lead, in seconds since the epoch; a moment before, if nobody else can lead."""
        return float(self.state()["elected_time"]) if "zk" in self._flags else self._started_at

    def state(self) -> Any:
        """Ask the master for its /state."""
        return self.get("/state")

    def agents(self) -> list[Any]:
        """The agents that it has, as in its /slaves; only a leader answers."""
        return list(self.get("/slaves")["slaves"])


class Agent(Process):
    """An agent."""

    def __init__(
        self,
        leader: Callable[[], Master | None],
        directory: Path,
        ip: str,
        port: int,
        flags: Mapping[str, str],
        host: Host | None = None,
    ) -> None:
        """Nothing runs yet. `leader`: the master that leads now, if one does."""
        super().__init__("agent", directory, ip, port, flags, host)
        self._leader = leader
        self._latest = directory / "work/meta/slaves/latest"  # the agent's own link, to .../slaves/<id>

    @property
    def cgroup_root(self) -> str:
        """Name of its top cgroup in each hierarchy; made only by the launcher linux."""
        return self._flags["cgroups_root"]

    @property
    def id(self) -> str:
        """The agent's id, as it has noted it: known also while it or the master is down.

        Raises:
            Unavailable: It has not registered yet.
        """
        if not self._latest.is_symlink():
            raise Unavailable(f"{self.name} has no id: it has not registered yet", remedy="wait for it")
        return self._latest.readlink().name

    def info(self) -> Any:
        """The agent as the leading master has it in /slaves; None unless it is active there."""
        leader = self._leader()
        return self._info(leader) if leader else None

    def _info(self, leader: Master) -> Any:
        address = f"@{self.ip}:{self.port}"
        return next((a for a in leader.agents() if a["active"] and a["pid"].endswith(address)), None)

    def ready(self) -> bool:
        """Whether it has (re)registered since it was started and the master began to lead. The master may take a
        moment to notice that an agent was killed, and shows it as active until then; and it shows a new agent a
        moment before that knows its id."""
        leader = self._leader()
        if leader is None or not (info := self._info(leader)) or not self._latest.is_symlink():
            return False
        since = max(self._started_at, leader.led_since())
        return bool(max(info["registered_time"], info.get("reregistered_time", 0)) > since)
