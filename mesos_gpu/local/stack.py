"""The whole platform on this machine: embedded Mesos, agents with simulated GPUs, and the scheduler."""

import contextlib
import http.client
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from isolator.agent.commands import executor_command
from isolator.agent.uploads import CACERT
from isolator.gpus.ledger import Ledger
from isolator.node.reaper import reap
from mesos_gpu.adapters.simulated.use import with_scripts
from mesos_gpu.adapters.simulated_gpus import (
    MODELS,
    SIMULATED_DRIVER,
    simulated_gpus,
    write_inventory,
)
from mesos_gpu.adapters.tls.here import TlsHere
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.install.mesos_access import roles_of
from mesos_gpu.libmesos import helpers
from mesos_gpu.local import leftovers, zookeeper
from mesos_gpu.local.cluster import AgentSpec, Cluster, Devices, Isolation
from mesos_gpu.local.network import Host, Network
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.processes import (
    await_port,
    get_json,
    get_json_by_socket,
    poll,
    private_log,
    send_signal,
)
from mesos_gpu.local.secure import Secure
from mesos_gpu.model.jobs.permits import Root
from mesos_gpu.model.nodes.driver import cuda_of

#: Command that starts a scheduler, without its options.
SCHEDULER: Final = (sys.executable, "-m", "mesos_gpu.scheduler")
_HERE: Final = "127.0.0.1"
#: Names of directories for jobs in the stack's directory: for any data, and for `docker save` archives.
SCRATCH: Final = "scratch"
IMAGES: Final = "images"
REGISTRY: Final = "MESOS_GPU_IMAGE_REGISTRY"
_PERSISTENT: Final = "persistent"  # roots of persistent volumes, by node
_PORT: Final = 8080  # of schedulers that have a host of their own
_MEETING = "meeting"  # file with the ZooKeeper URL of several schedulers
_OF_OTHERS = re.compile(r"(scheduler|run)-[0-9]+")


def address(number: int) -> str:
    """Return the loopback address of a node, counted from 1; it is its host name too, as it resolves everywhere."""
    return f"127.0.0.{10 + number}"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """An agent with simulated GPUs.

    Attributes:
        gpus: Number of simulated GPUs.
        model: Model of the GPUs.
        cpus: CPUs that the agent offers, independent of the machine's.
        mem_mib: Memory in MiB that the agent offers, independent of the machine's.
        driver: Driver version that the GPUs report.
        attributes: Attributes of the agent besides gpu_model.
        zone: Zone of the agent in the only region; "" for none.
        hostname: Host name of the agent; "" for its address.
        flags: Additional flags of mesos-agent.
        scripts: Simulated GPU use of jobs: see `SimulatedProbe`.

    Raises:
        BadConfiguration: The model cannot be simulated.
    """

    gpus: int = 4
    model: str = "NVIDIA A100-SXM4-80GB"
    cpus: float = 32.0
    mem_mib: int = 131072
    driver: str = SIMULATED_DRIVER
    attributes: Mapping[str, str] = field(default_factory=dict)
    zone: str = ""
    hostname: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise BadConfiguration(
                f"unknown GPU model {self.model!r} to simulate", remedy=f"choose one of: {', '.join(MODELS)}"
            )


def spawn(words: Sequence[str], environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    """Start a scheduler in a session of its own. `log`: descriptor for its output."""
    return subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


class SchedulerProcess:
    """A `mesos-gpu scheduler` process; after `kill()`, `start()` continues with the same state and port.

    Args:
        directory: Directory of its state and log.
        arguments: Options of `mesos-gpu scheduler`.
        port: Port of the REST interface.
        mark: Directory of the cluster whose clean-up ends this process too.
        tls: Certificate of the REST interface; None for plain HTTP.
        socket: Unix socket for requests if the scheduler authenticates clients; None if it does not.
        host: Host on which it runs; None for this machine itself.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str],
        port: int,
        mark: str,
        tls: TlsHere | None = None,
        socket: Path | None = None,
        host: Host | None = None,
    ) -> None:
        self.directory, self.port, self._tls, self._socket = directory, port, tls, socket
        self.host, self.ip = host, host.ip if host else _HERE
        self.url = f"http://{self.ip}:{port}" if tls is None else tls.url(port)
        self.log = directory / "log"
        self._arguments, self._mark = list(arguments), mark
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def reach(self) -> str:
        """URL for clients on this host: the Unix socket, if there is one, which authenticates them by the kernel."""
        return self.url if self._socket is None else f"unix:{self._socket}"

    @property
    def pid(self) -> int:
        """Process id of the latest start.

        Raises:
            Unavailable: The scheduler was never started.
        """
        if self._popen is None:
            raise Unavailable("the scheduler was not started", remedy="start it")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the scheduler was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit status of the latest start; None if it is running, or was never started."""
        return None if self._popen is None else self._popen.poll()

    def start(self, *more: str) -> Self:
        """Start the scheduler, with additional options `more` for this start; see `wait`."""
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o700)
        if self._popen is not None and self.host is None:
            await_port(self.ip, self.port)
        command = [*SCHEDULER, *self._arguments, *more]
        with private_log(self.log) as log:
            environment = {**os.environ, leftovers.MARK: self._mark}
            words = self.host.inside(command) if self.host else command
            self._popen = spawn(words, environment, log.fileno())
        return self

    def wait(self, timeout_s: float = 60) -> Self:
        """Wait until the scheduler answers and is connected to the master.

        Raises:
            Unavailable: It ended, or is not ready in time; the message has the end of its log.
        """
        poll(f"scheduler {self.url}", self._ready, timeout_s)
        return self

    def _ready(self) -> bool:
        if not self.running:
            raise Unavailable(f"the scheduler ended:\n{self.tail()}", remedy="fix the error in its log")
        try:
            return bool(self.get("/v1/health")["connected"])
        except http.client.HTTPException:  # the status is 503 while it is not connected
            return False

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def get(self, path: str) -> Any:
        """Request a JSON document from the scheduler."""
        if self._socket is not None:
            return get_json_by_socket(self._socket, path)
        if self._tls is None:
            return get_json(self.ip, self.port, path)
        return get_json(self._tls.name, self.port, path, tls=self._tls.context())

    def send(self, number: int) -> None:
        """Send a signal if the scheduler was started."""
        if self._popen is not None:
            send_signal(self._popen, number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait until the scheduler has ended."""
        self.send(number)
        if self._popen is not None:
            self._popen.wait(30)

    def end(self) -> None:
        """End the scheduler by SIGTERM, also if it was stopped by SIGSTOP."""
        self.send(signal.SIGTERM)
        self.kill(signal.SIGCONT)


def _check_hosts(secure: bool, tls: TlsHere | None) -> None:
    if tls or not secure:
        raise BadConfiguration(
            "with hosts=True schedulers use plain HTTP and must authenticate clients",
            remedy="use secure=True without tls",
        )


class Stack:
    """Context manager that starts and stops the whole platform. Stopping removes everything, the directory included.

    Args:
        directory: Directory of the stack.
        nodes: Agents with simulated GPUs.
        port: Port of the REST interface; None for a free one.
        scheduler_arguments: Additional options of each scheduler.
        executor_environment: Variables of executors that override those of the stack.
        allow_root: Places in which jobs may run as root.
        isolation: Isolation of containers, as for `Cluster`.
        images: Directory of image archives, as for `Cluster`.
        devices: Provider of device cgroups, as for `Cluster`.
        master_flags: Flags of masters, as for `Cluster`.
        secure: Whether Mesos and the scheduler authenticate all clients.
        tls: Certificate of the REST interface; None for plain HTTP.
        masters: Number of masters, as for `Cluster`.
        hosts: Whether masters, agents and schedulers get hosts of their own, in network namespaces; needs `secure` and
            excludes `tls`.
        schedulers: Number of schedulers; several elect a leader, and the others are on standby: see `schedulers`,
            `leader` and `standbys`.
        made: Modes of directories for jobs to create at the start, directly below `directory`.

    Raises:
        BadConfiguration: hosts is given without secure, or with tls.
        Unavailable: The embedded Mesos cannot run here.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[NodeSpec] = (NodeSpec(), NodeSpec()),
        *,
        port: int | None = None,
        scheduler_arguments: Sequence[str] = (),
        executor_environment: Mapping[str, str] | None = None,
        allow_root: Root = Root.NOWHERE,
        isolation: Isolation = "auto",
        images: Path | None = None,
        devices: Devices = "",
        master_flags: Mapping[str, str] | None = None,
        secure: bool = False,
        tls: TlsHere | None = None,
        masters: int = 1,
        hosts: bool = False,
        schedulers: int = 1,
        made: Mapping[Path, int] | None = None,
    ) -> None:
        if hosts:
            _check_hosts(secure, tls)
        self.directory = Path(os.path.realpath(directory))
        self.nodes = tuple(nodes)
        self.socket = self.directory / "run" / "api.sock" if secure else None
        network = Network(self.directory / "mesos") if hosts else None
        self.secure = Secure(self.directory / "secrets", roles_of(scheduler_arguments)) if secure else None
        variables = {**_trusted_certificate(tls), **(executor_environment or {})}
        agents = [self._agent(n, spec, variables, allow_root, hosts=hosts) for n, spec in self._numbered()]
        zone = next((spec.zone for spec in self.nodes if spec.zone), "")
        registry = variables.get(REGISTRY, "")
        #: Directory of image archives for jobs; None without images.
        self.archives = images or (Path(registry) if registry.startswith("/") else None)
        self.cluster = Cluster(
            self.directory / "mesos",
            agents,
            # A master without a domain refuses agents that have a domain.
            master_flags={**_domain(zone), **(master_flags or {})},
            isolation=isolation,
            images=images,
            devices=devices,
            secure=self.secure,
            masters=masters,
            network=network,
            meeting=schedulers > 1,
        )
        self.tls, self._allow_root, self._more_arguments = tls, allow_root, list(scheduler_arguments)
        self._several, self._job_directories = schedulers > 1, dict(made or {})
        #: All schedulers; the leader is not always the first.
        self.schedulers = tuple(self._schedulers(schedulers, port, network))
        self.scheduler = self.schedulers[0]
        self.url = self.scheduler.url
        self.reach = self.scheduler.reach

    def _schedulers(
        self, count: int, port: int | None, network: Network | None
    ) -> Iterator[SchedulerProcess]:
        taken = set[int]()
        for number in range(1, count + 1):
            host = network.add(f"s{number}") if network else None
            free = port if port and number == 1 else _PORT if host else free_port(taken=taken)
            taken.add(free)
            yield self._scheduler(number, free, host)

    def _scheduler(self, number: int, port: int, host: Host | None) -> SchedulerProcess:
        """Create the handle of a scheduler, with its options."""
        directory = self.directory / ("scheduler" if number == 1 else f"scheduler-{number}")
        socket = (
            self.socket if number == 1 or self.socket is None else self.directory / f"run-{number}/api.sock"
        )
        arguments = [
            *self._arguments(directory, socket),
            *(
                []
                if "--executor-archive" in self._more_arguments
                else _commands(self.cluster.directory / "libexec")
            ),
            *self._more_arguments,
            *["--port", str(port)],
            *(self.tls.arguments(port) if self.tls else []),
            *(["--host", host.ip, "--insecure-plain-http"] if host else []),
            *(self._ha(host.ip if host else _HERE, port) if self._several else []),
        ]
        return SchedulerProcess(
            directory, arguments, port, str(self.cluster.directory), self.tls, socket, host
        )

    def _arguments(self, directory: Path, socket: Path | None) -> list[str]:
        """Return the options of a scheduler that refer to this cluster and the scheduler's files."""
        root = self._allow_root
        return [
            "--master", self.cluster.address,
            "--state", str(directory / "state.sqlite"),
            "--journal", str(directory / "journal"),
            *(["--allow-root", root.value] if root is not Root.NOWHERE else []),
            *_default_user(),
            *(self.secure.scheduler_arguments() if self.secure else []),
            *(["--socket", str(socket)] if socket else []),
        ]  # fmt: skip

    def _ha(self, ip: str, port: int) -> list[str]:
        url = self.tls.url(port) if self.tls else f"http://{ip}:{port}"
        trust = ["--ha-cacert", str(self.tls.certificate)] if self.tls else []
        return ["--ha", f"file://{self.directory / _MEETING}", "--ha-url", url, *trust]

    def leader(self) -> SchedulerProcess | None:
        """Return the scheduler that leads and is connected to the master; None if no scheduler does."""
        for scheduler in self.schedulers:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if not scheduler.running or not scheduler.get("/v1/health")["connected"]:
                    continue
                if not self._several or scheduler.get("/v1/leader")["leads"]:
                    return scheduler
        return None

    def await_leader(self, timeout_s: float = 60) -> SchedulerProcess:
        """Wait until a scheduler leads, and return it.

        Raises:
            Unavailable: None leads in time.
        """
        return poll("a scheduler that leads", self.leader, timeout_s)

    def standbys(self) -> Sequence[SchedulerProcess]:
        """Return the running schedulers that do not lead."""
        leader = self.leader()
        return [scheduler for scheduler in self.schedulers if scheduler.running and scheduler is not leader]

    def _numbered(self) -> list[tuple[int, NodeSpec]]:
        return list(enumerate(self.nodes, 1))

    def _agent(
        self, number: int, spec: NodeSpec, more: Mapping[str, str], allow_root: Root, *, hosts: bool
    ) -> AgentSpec:
        """Return the specification of a node's agent, with the environment of its executors."""
        environment = {
            "MESOS_GPU_INVENTORY": str(self.inventory(number)),
            "MESOS_GPU_NODE_DIR": str(self.directory / "nodes" / str(number)),
            "MESOS_GPU_VOLUMES": str(self.directory / "volumes" / str(number)),
            "MESOS_GPU_PERSISTENT_ROOT": str(self.persistent(number)),
            "MESOS_GPU_ALLOW_ROOT": allow_root.value,
            **({"MESOS_GPU_ISOLATION": "off"} if os.geteuid() else {}),  # isolation needs root
            **more,
        }
        name = spec.hostname or ("" if hosts else address(number))
        named = {"hostname": name} if name else {}
        return AgentSpec(
            {"cpus": spec.cpus, "mem": spec.mem_mib, "gpus": spec.gpus},
            {"gpu_model": spec.model.replace(" ", "-"), **spec.attributes},
            environment,
            {**named, **_domain(spec.zone), **spec.flags},
            ip=address(number),
        )

    def persistent(self, number: int) -> Path:
        """Return the directory of the persistent volumes of a node, counted from 1."""
        return self.directory / _PERSISTENT / str(number)

    def inventory(self, number: int) -> Path:
        """Return the inventory file of a node, counted from 1: edit it to change the health of its GPUs."""
        return self.directory / "gpus" / f"node{number}.json"

    def start(self, tell: Callable[[str], None] = lambda _: None) -> Self:
        """Clean up after an earlier run, start everything, and wait until the scheduler is connected.

        Args:
            tell: Progress callback, called with a description of what is waited for next.

        Raises:
            Conflict: A running stack uses the directory.
            Unavailable: A part does not start.
        """
        clean_up(self.directory)
        self.directory.mkdir(parents=True)
        self.directory.chmod(0o755)
        (self.directory / "gpus").mkdir(mode=0o755)
        (self.directory / "nodes").mkdir(mode=0o700)
        for path, mode in self._job_directories.items():
            path.mkdir()
            path.chmod(mode)
        if self.secure:
            self.secure.write()
        (self.directory / _PERSISTENT).mkdir(mode=0o700)
        for number, spec in self._numbered():
            self.persistent(number).mkdir(mode=0o700)
            gpus = simulated_gpus(spec.gpus, spec.model, seed=f"node{number}")
            write_inventory(
                self.inventory(number),
                gpus,
                driver_version=spec.driver,
                cuda_version=".".join(map(str, cuda_of(spec.driver) or ())),
                use=with_scripts(spec.scripts),
            )
        try:
            self.cluster.start(tell)
            if self._several:
                self._write_meeting()
            tell("the scheduler")
            for scheduler in self.schedulers:  # the first leads
                scheduler.start().wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End and remove everything; a second Ctrl-C does not interrupt it."""
        with _uninterrupted():
            for scheduler in self.schedulers:
                scheduler.end()
            self.cluster.stop()
            _undo_tasks(self.directory)
            shutil.rmtree(self.directory)

    def _write_meeting(self) -> None:
        """Write the ZooKeeper URL of the schedulers, with a password if they are on hosts of their own."""
        proof = f"schedulers:{secrets.token_hex(16)}" if self.cluster.network else ""
        path = self.directory / _MEETING
        path.touch(0o600)
        path.write_text(zookeeper.url(self.cluster.zookeepers, "mesos-gpu", proof))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _trusted_certificate(tls: TlsHere | None) -> dict[str, str]:
    """Return the executors' variable for the REST interface's certificate, whose authority may be unknown here."""
    return {} if tls is None else {CACERT: str(tls.certificate)}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM within this context. Other threads than the main one have no signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def clean_up(directory: Path) -> None:
    """Remove what an owner that was killed left in `directory`; harmless if there is nothing.

    Raises:
        Conflict: The owner is alive.
        BadConfiguration: The directory contains other files.
    """
    if not directory.exists():
        return
    ours = {
        "mesos",
        "scheduler",
        "gpus",
        "nodes",
        "volumes",
        "secrets",
        "run",
        _MEETING,
        _PERSISTENT,
        SCRATCH,
        IMAGES,
    }
    names = (entry.name for entry in directory.iterdir())
    foreign = sorted(name for name in names if name not in ours and not _OF_OTHERS.fullmatch(name))
    if foreign:
        raise BadConfiguration(
            f"{directory} holds {', '.join(foreign)}, which do not belong to a cluster of this program",
            remedy="choose another directory",
        )
    leftovers.clean_up(directory / "mesos")
    _undo_tasks(directory)
    shutil.rmtree(directory)


def _undo_tasks(directory: Path) -> None:
    """End tasks of executors that were killed after their node's monitor."""
    for path in directory.glob("nodes/*/ledger.sqlite"):
        reap(Ledger(path))


def _commands(launcher: Path) -> list[str]:
    """Return the options by which agents start this installation's programs. `launcher`: their launcher_dir."""
    return [
        "--executor-command", helpers.executor_command(launcher),
        "--monitor-command", executor_command("monitor"),
        "--keeper-command", executor_command("keeper"),
    ]  # fmt: skip


def _default_user() -> list[str]:
    """Return the option with the default user of jobs: an unprivileged user for a cluster of root, else its own."""
    return ["--default-user", "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name]


def _domain(zone: str) -> dict[str, str]:
    """Return the flag of a master or agent that puts it into a zone of the only region."""
    domain = {"fault_domain": {"region": {"name": "local"}, "zone": {"name": zone}}}
    return {"domain": json.dumps(domain)} if zone else {}
