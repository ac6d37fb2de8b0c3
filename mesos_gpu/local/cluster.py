"""A real Mesos cluster on this machine: masters and agents, each a process of its own."""

import contextlib
import http.client
import json
import logging
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from isolator.host import port_ranges
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.libmesos import fetch, helpers
from mesos_gpu.local import leftovers, zookeeper
from mesos_gpu.local.network import Host, Network
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.processes import Agent, Master, poll
from mesos_gpu.local.secure import Secure
from mesos_gpu.local.task_ports import TaskPorts
from mesos_gpu.local.zookeeper import ZooKeeper

logger = logging.getLogger(__name__)
Isolation = Literal["auto", "linux", "posix"]
#: Provider of a cgroup for each container that controls devices: Mesos' isolator cgroups/devices (v1), or the launch
#: helper (v2, as in Mesos after 1.11); "" for none.
Devices = Literal["mesos", "cgroup2", ""]
_LAUNCHERS: Final[dict[str, dict[str, str]]] = {
    "posix": {"launcher": "posix", "isolation": "posix/cpu,posix/mem,filesystem/posix"},
    # cgroups/devices and cgroups/pids would add 10 % to a launch (0.105 s to RUNNING instead of 0.096 s), and
    # nothing needs them by default: AgentSpec.flags can enable them.
    "linux": {"launcher": "linux", "isolation": "cgroups/cpu,cgroups/mem,filesystem/posix"},
}
_CGROUPS: Final = Path("/sys/fs/cgroup")
_MASTER_FLAGS: Final = {
    # Agents are still known after the master was killed and restarted.
    "registry": "replicated_log",
    # An agent notices a new master only by missing pings.
    "agent_ping_timeout": "1secs",
    "max_agent_ping_timeouts": "4",
    "allocation_interval": "50ms",
}


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Resources, attributes and flags of one agent of the cluster.

    Raises:
        BadConfiguration: Mesos would misread an attribute.
    """

    resources: Mapping[str, float] = field(default_factory=lambda: {"cpus": 4, "mem": 4096})  # and disk, gpus
    attributes: Mapping[str, str] = field(default_factory=dict)
    # Environment of executors, besides PATH.
    executor_environment: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)  # flags of mesos-agent that override the cluster's
    ip: str = ""  # a loopback address of its own; "" for the cluster's

    def __post_init__(self) -> None:
        """Refuse attributes that Mesos' text format, name:value;name:value, cannot hold.

        1.11.0 drops blanks silently: "Tesla A" becomes "TeslaA".
        """
        for name, value in self.attributes.items():
            if ":" in name or ";" in name + value or re.search(r"\s", name + value):
                raise BadConfiguration(
                    f"Mesos cannot store the attribute {name}={value!r}",
                    remedy="use no blank, no ';', and no ':' in the name",
                )


class Cluster:
    """Context manager of a cluster. `stop` removes all that it created; so does the next start after a kill -9.

    Args:
        directory: Directory of cluster.json, libexec/, master/ and agent-N/, the latter with log and work/. Tasks of
            other users need execute permission on every directory above it.
        agents: Agents of the cluster.
        ip: Address of all processes that have no host or address of their own.
        master_port: Port of the master; None for a free one.
        master_flags: Flags of masters that override the cluster's.
        isolation: Isolation of containers; "auto" chooses by what the machine supports.
        images: Directory of `docker save` archives, as `<images>/<name>:<tag>.tar`, for containers with images.
        devices: Provider of cgroups that control devices.
        secure: Credentials and access lists; None for a cluster without authentication.
        masters: Number of masters; several elect a leader through as many ZooKeeper servers, which are started too.
        network: Network in which each master, with its ZooKeeper, and each agent gets a host of its own; None to use
            this machine's addresses.
        meeting: Whether to start ZooKeeper for a single master too, for schedulers to meet in.

    Raises:
        BadConfiguration: A flag is given that the cluster itself must set.
        Unavailable: isolation="linux", images or devices without root or cgroup v1 (v2 for devices="cgroup2");
            isolation="posix" with images or devices; no free port; no ZooKeeper.
    """

    def __init__(
        self,
        directory: Path,
        agents: Sequence[AgentSpec] = (AgentSpec(),),
        *,
        ip: str = "127.0.0.1",
        master_port: int | None = None,
        master_flags: Mapping[str, str] | None = None,
        isolation: Isolation = "auto",
        images: Path | None = None,
        devices: Devices = "",
        secure: Secure | None = None,
        masters: int = 1,
        network: Network | None = None,
        meeting: bool = False,
    ) -> None:
        if masters > 1 or meeting:
            zookeeper.check()
        self.directory = Path(os.path.realpath(directory))
        self.images, self.devices = None if images is None else Path(os.path.realpath(images)), devices
        wish: Isolation = "linux" if isolation == "auto" and (images or devices) else isolation
        self.ip, self.isolation = ip, choose_isolation(wish)
        if images or devices:
            _check_containers(self.isolation, images, devices)
        self._secure, self.network = secure, network
        self._ports: set[int] = set()
        self._elects = masters > 1
        self.zookeepers: tuple[ZooKeeper, ...] = ()
        hosts = [network.add(f"m{number}") if network else None for number in range(1, masters + 1)]
        if masters > 1 or meeting:
            self.zookeepers = self._ensemble(hosts)
        self.masters = tuple(
            self._master(number, host, master_port, master_flags or {})
            for number, host in enumerate(hosts, 1)
        )
        self.agents: tuple[Agent, ...] = ()
        self._started, self._task_ports = False, TaskPorts()
        for spec in agents:
            self.agents += (self._agent(spec, len(agents)),)

    @property
    def fixed_ports(self) -> tuple[int, int]:
        """First and last port of the block that every agent offers."""
        return self._task_ports.fixed

    @property
    def master(self) -> Master:
        """The first master, which is the only one unless several were requested."""
        return self.masters[0]

    @property
    def address(self) -> str:
        """Address of the leading master for agents and frameworks: a zk:// URL, or IP:PORT."""
        return zookeeper.url(self.zookeepers) if self._elects else f"{self.master.ip}:{self.master.port}"

    def leader(self) -> Master | None:
        """Return the master that leads and has recovered its registry; None if no master leads."""
        for master in self.masters:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if master.running and master.ready():
                    return master
        return None

    def _free_port(self, ip: str, width: int = 1) -> int:
        """Return the first of `width` successive free ports, and reserve them within the cluster."""
        port = free_port(ip, self._ports, width)
        self._ports.update(range(port, port + width))
        return port

    def _ensemble(self, hosts: Sequence[Host | None]) -> tuple[ZooKeeper, ...]:
        """Create a ZooKeeper server beside each master."""
        servers: list[ZooKeeper] = []
        for number, host in enumerate(hosts, 1):
            ip = host.ip if host else self.ip
            port = 2181 if host else self._free_port(ip, zookeeper.PORTS)
            servers.append(ZooKeeper(self.directory / f"zookeeper-{number}", number, ip, port, host))
        for server in servers:
            server.join(servers)
        return tuple(servers)

    def _master(self, number: int, host: Host | None, port: int | None, more: Mapping[str, str]) -> Master:
        """Create the handle of a master, with its flags."""
        ip = host.ip if host else self.ip
        directory = self.directory / (f"master-{number}" if self._elects else "master")
        port = port or (5050 if host else self._free_port(ip))
        flags = {
            "cluster": self.directory.name,
            "hostname": ip,
            **_MASTER_FLAGS,
            **self._election(),
            **(self._secure.master_flags() if self._secure else {}),
            **more,
        }
        master = Master(directory, ip, port, _flags(flags, directory, ip, port), host)
        master.secure = self._secure
        if self._elects:  # another master can be asked instead
            master.answers_in_s = 1.0
        return master

    def _election(self) -> dict[str, str]:
        """Return the flags of a master that is one of several."""
        if not self._elects:
            return {}
        quorum = str(len(self.zookeepers) // 2 + 1)
        return {
            "zk": self.address,
            "quorum": quorum,
            "zk_session_timeout": "2secs",
            # A leader without a quorum ends after that time; it would not recover when the quorum returns.
            "registry_fetch_timeout": "5secs",
        }

    def _agent(self, spec: AgentSpec, agents: int) -> Agent:
        """Create the handle of an agent, with its resources and flags."""
        number = len(self.agents) + 1
        directory = self.directory / f"agent-{number}"
        host = self.network.add(f"a{number}") if self.network else None
        ip = host.ip if host else spec.ip or self.ip
        port = 5051 if host else self._free_port(ip)
        ports = (self._task_ports.fixed, self._task_ports.share(number, agents))
        amounts = {"disk": 10000, **spec.resources}
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            # All agents are on this machine: a task must not bind ports that another agent offers.
            port_ranges.SETTING: port_ranges.text_of((self._task_ports.fixed, self._task_ports.block)),
            **(self._secure.executor_environment() if self._secure else {}),
            **spec.executor_environment,
        }
        flags = {
            **_LAUNCHERS[self.isolation],
            **self._container_flags(directory),
            "hostname": ip,
            "systemd_enable_support": "false",
            "switch_user": "true" if os.geteuid() == 0 else "false",
            "registration_backoff_factor": "50ms",
            "resources": ";".join(f"{k}:{v:.12g}" for k, v in amounts.items())
            + ";ports:[{}]".format(", ".join(f"{first}-{last}" for first, last in ports)),
            "attributes": ";".join(f"{name}:{value}" for name, value in spec.attributes.items()),
            "executor_environment_variables": json.dumps(environment),
            **(self._secure.agent_flags() if self._secure else {}),
            **spec.flags,
        }
        ours = {
            "master": self.address,
            "launcher_dir": str(self.directory / "libexec"),
            "runtime_dir": str(directory / "run"),
            "fetcher_cache_dir": str(directory / "fetch"),
            "cgroups_hierarchy": str(_CGROUPS),
            "cgroups_root": leftovers.cgroup_root(self.directory, number),
        }
        agent = Agent(self.leader, directory, ip, port, _flags(flags, directory, ip, port, **ours), host)
        agent.secure = self._secure
        return agent

    def _container_flags(self, directory: Path) -> dict[str, str]:
        """Return an agent's flags for images and devices.

        linux/nnp: otherwise a setuid file of an image would make its caller root, who may change the rules of the
        container's cgroup. namespaces/ipc: otherwise all containers would share System V shared memory and POSIX
        queues.
        """
        launcher = _LAUNCHERS[self.isolation]["isolation"]
        flags = {}
        if self.images:
            launcher = launcher.replace(
                "filesystem/posix", "filesystem/linux,docker/runtime,linux/nnp,namespaces/ipc"
            )
            flags = {
                "image_providers": "docker",
                "docker_registry": str(self.images),
                "docker_store_dir": str(directory / "store"),
            }
            if (
                _CGROUPS / "pids"
            ).is_dir():  # only cgroup v1 needs it to limit the number of an image's processes
                launcher += ",cgroups/pids"
        if self.devices == "mesos":
            launcher += ",cgroups/devices"
        return {"isolation": launcher, **flags}

    def add_agent(self, spec: AgentSpec) -> Agent:
        """Add an agent. If the cluster is running, start the agent and wait for it.

        Raises:
            BadConfiguration, Unavailable: See `Process.wait`. The agent stays in `agents`, so that `stop` ends it.
        """
        agent = self._agent(spec, max(len(self.agents), 1))
        self.agents += (agent,)
        if self._started:
            self._note(agent)
            agent.start().wait()
        return agent

    def _cgroup2(self) -> str:
        """Return the prefix of the agents' cgroups v2 for `containerizer.main`; "" without devices="cgroup2"."""
        mount = cgroup2() if self.devices == "cgroup2" else None
        return "" if mount is None else str(mount / leftovers.cgroup_prefix(self.directory))

    def _note(self, *agents: Agent) -> None:
        """Record the agents' directories and cgroups before they are created."""
        with leftovers.editing(self.directory) as record:
            record.networks = [self.network.name] if self.network else []
            record.entries += [agent.name for agent in agents]
            record.cgroup_roots += [agent.cgroup_root for agent in agents]

    def start(self, tell: Callable[[str], None] = lambda _: None) -> Self:
        """Clean up after an earlier owner, start all processes, and wait until all agents are registered.

        Args:
            tell: Progress callback, called with a description of what is waited for next.

        Raises:
            Conflict: The directory belongs to another running cluster.
            BadConfiguration: Mesos refuses a flag; the message has its text.
            Unavailable: Something is missing, or does not start.
        """
        if self.images is not None and not self.images.is_dir():
            raise Unavailable(f"{self.images} is not a directory", remedy="create it, or omit images")
        library = fetch.libmesos()
        first = (*self.zookeepers, *self.masters)
        leftovers.claim(self.directory, entries=["libexec", *(process.directory.name for process in first)])
        self._started = True
        try:
            helpers.write(self.directory / "libexec", library, self._cgroup2())
            self._note(*self.agents)
            if self.network:
                self.network.open()
            if self.zookeepers:
                tell("ZooKeeper")
            for server in self.zookeepers:
                server.start()
            for server in self.zookeepers:
                server.wait()
            tell("the Mesos master")
            for master in self.masters:
                master.start()
            self.await_leader()
            for agent in self.agents:
                agent.start()
            for number, agent in enumerate(self.agents, 1):
                tell(f"agent {number} of {len(self.agents)}")
                agent.wait()
        except BaseException:
            self.stop(grace_s=0)
            raise
        return self

    def await_leader(self, timeout_s: float = 120) -> Master:
        """Wait until a master leads, and return it.

        Raises:
            BadConfiguration, Unavailable: The only master ended, or none leads in time.
        """

        def leader() -> Master | None:
            for master in self.masters:
                if not self._elects:
                    master.checked()
            return self.leader()

        return poll("a master that leads", leader, timeout_s)

    def stop(self, *, grace_s: float = 6.0) -> None:
        """End all processes and remove what they created; harmless if nothing runs.

        Agents are signalled first: they unregister and shut down their executors, which get
        `executor_shutdown_grace_period`, by default 5 s.

        Raises:
            Conflict: A process or cgroup could not be removed; the message names it.
        """
        if not self._started:
            return
        try:
            leftovers.note_processes(self.directory)
        except OSError as error:  # e.g. a full disk: children of processes that end first may then be missed
            logger.warning("processes of the cluster could not be recorded: %s", error.strerror)
        first = (*self.masters, *self.zookeepers)
        for process in (*first, *self.agents):
            process.send(signal.SIGCONT)
        for agent in self.agents:
            agent.send(signal.SIGUSR1)
        deadline = time.monotonic() + grace_s
        while any(agent.running for agent in self.agents) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in (*self.agents, *first):
            process.kill()
        leftovers.remove(leftovers.own(self.directory))
        self._task_ports.close()
        self._started = False

    @staticmethod
    def clean_up(directory: Path) -> None:
        """Clean up after a cluster whose owner was killed, as `leftovers.clean_up` does."""
        leftovers.clean_up(directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _flags(flags: Mapping[str, str], directory: Path, ip: str, port: int, **ours: str) -> dict[str, str]:
    """Return all flags of a process: those that may be chosen, and `ours`, which the clean-up depends on.

    Raises:
        BadConfiguration: A flag of `ours` is also among the others.
    """
    ours |= {"work_dir": str(directory / "work"), "ip": ip, "port": str(port)}
    if both := sorted(flags.keys() & ours.keys()):
        raise BadConfiguration(f"the cluster itself sets {', '.join(both)}", remedy="leave these flags out")
    return {name: value for name, value in flags.items() if value} | ours


def choose_isolation(wish: Isolation) -> Literal["linux", "posix"]:
    """Return `linux` (cgroups) for root on a host with cgroup v1 controllers, else `posix`, or what `wish` demands.

    Raises:
        Unavailable: linux is demanded but impossible.
    """
    mounted = {path for path in leftovers.hierarchies() if os.access(path, os.W_OK)}
    missing = [name for name in ("cpu", "cpuacct", "memory", "freezer") if _CGROUPS / name not in mounted]
    if wish == "linux" and (missing or os.geteuid()):
        lack = f"no writable {_CGROUPS}/{{{','.join(missing)}}} of cgroup v1" if missing else "not root"
        raise Unavailable(
            f"no isolation by cgroups: {lack}", remedy="use isolation posix, without images and devices"
        )
    return "posix" if missing or os.geteuid() or wish == "posix" else "linux"


def _check_containers(isolation: Isolation, images: Path | None, devices: Devices) -> None:
    """Check for what containers with images, or with cgroups for devices, need in addition.

    Raises:
        Unavailable: Something is missing.
    """
    lack = ""
    if isolation == "posix":
        lack = "isolation is posix"
    elif devices == "mesos" and _CGROUPS / "devices" not in leftovers.hierarchies():
        lack = f"no {_CGROUPS}/devices of cgroup v1"
    elif devices == "cgroup2" and cgroup2() is None:
        lack = "no writable cgroup v2 is mounted"
    elif images is not None and shutil.which("tar") is None:
        lack = "no program tar, with which Mesos unpacks images"
    if lack:
        raise Unavailable(
            f"no images or devices for containers: {lack}",
            remedy="provide it, or omit images and devices",
        )


def lack_of_images() -> str:
    """Return why containers on this machine cannot have images; "" if they can."""
    try:
        _check_containers(choose_isolation("linux"), Path("/"), "mesos")
    except Unavailable as error:
        return error.what
    return ""


def cgroup2() -> Path | None:
    """Return the mount point of the cgroup v2 hierarchy, alone or beside those of v1; None if it is not writable."""
    return next((path for path in leftovers.hierarchies("cgroup2") if os.access(path, os.W_OK)), None)
