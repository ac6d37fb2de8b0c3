"""A real Mesos cluster on this machine: one master and any number of agents, each a process of its own."""

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.local import fetch, helpers, leftovers
from mesos_gpu.local.processes import Agent, Master

Isolation = Literal["auto", "linux", "posix"]
_LAUNCHERS: Final[dict[str, dict[str, str]]] = {
    "posix": {"launcher": "posix", "isolation": "posix/cpu,posix/mem,filesystem/posix"},
    "linux": {"launcher": "linux", "isolation": "cgroups/cpu,cgroups/mem,filesystem/posix"},
}
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: Below the ephemeral range and Mesos' own 31000-32000: a port must still be free when its process is started
#: again.
_PORTS: Final = range(15000, 31000)
_MASTER_FLAGS: Final = {
    # Its agents are known after a kill -9 of it.
    "registry": "replicated_log",
    # An agent notices a new master only by the pings that it misses.
    "agent_ping_timeout": "1secs",
    "max_agent_ping_timeouts": "4",
    "allocation_interval": "50ms",
}


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent.

    Raises:
        BadConfiguration: An attribute that Mesos would read as something else.
    """

    resources: Mapping[str, float] = field(default_factory=lambda: {"cpus": 4, "mem": 4096})  # and disk, gpus
    attributes: Mapping[str, str] = field(default_factory=dict)
    executor_environment: Mapping[str, str] = field(default_factory=dict)  # all that executors get, and PATH
    flags: Mapping[str, str] = field(default_factory=dict)  # further flags of mesos-agent; these win

    def __post_init__(self) -> None:
        """Check what Mesos' own text format cannot hold."""
        for name, value in self.attributes.items():
            if ":" in name or ";" in name + value:
                raise BadConfiguration(
                    f"attribute {name}={value}: Mesos writes attributes as name:value;name:value",
                    remedy="use no ';', and no ':' in the name",
                )


class Cluster:
    """A context manager. Stopping removes all that it made; so does the next start after its own kill -9.

    directory: holds cluster.json, libexec/, master/ and agent-N/, each with log and work/. Tasks of other
    users than this one need every directory above it to be passable.
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
    ) -> None:
        """Nothing runs yet, and nothing is written. master_port: None for a free one.

        Raises:
            Unavailable: isolation="linux" and not root, or no cgroup v1; or no free port.
        """
        self.directory = Path(os.path.realpath(directory))
        self.ip, self.isolation = ip, choose_isolation(isolation)
        port = master_port or free_port(ip)
        flags = {"cluster": self.directory.name, **_MASTER_FLAGS, **(master_flags or {})}
        self.master = Master(
            self.directory / "master", ip, port, {**_common(self.directory / "master", ip, port), **flags}
        )
        self.agents: tuple[Agent, ...] = ()
        self._record: leftovers.Record | None = None
        for spec in agents:
            self.agents += (self._agent(spec),)

    def _agent(self, spec: AgentSpec) -> Agent:
        number = len(self.agents) + 1
        directory, port = self.directory / f"agent-{number}", free_port(self.ip)
        resources = {"disk": 10000, **spec.resources}
        environment = {"PATH": os.environ.get("PATH", os.defpath), **spec.executor_environment}
        flags = {
            **_common(directory, self.ip, port),
            **_LAUNCHERS[self.isolation],
            "master": f"{self.ip}:{self.master.port}",
            "launcher_dir": str(self.directory / "libexec"),
            "systemd_enable_support": "false",
            "switch_user": "true" if os.geteuid() == 0 else "false",
            "runtime_dir": str(directory / "run"),
            "fetcher_cache_dir": str(directory / "fetch"),
            "cgroups_hierarchy": str(_CGROUPS),
            "cgroups_root": leftovers.cgroup_root(self.directory, number),
            "registration_backoff_factor": "50ms",
            "resources": ";".join(f"{k}:{v:.12g}" for k, v in resources.items()) + ";ports:[31000-32000]",
            "executor_environment_variables": json.dumps(environment),
            **(
                {"attributes": ";".join(f"{k}:{v}" for k, v in spec.attributes.items())}
                if spec.attributes
                else {}
            ),
            **spec.flags,
        }
        return Agent(self.master, directory, self.ip, port, flags)

    def add_agent(self, spec: AgentSpec) -> Agent:
        """One more agent; in a cluster that is started, it is started and waited for.

        Raises:
            BadConfiguration, Unavailable: As of `Process.wait`. It stays in `agents`, so `stop` ends it.
        """
        agent = self._agent(spec)
        self.agents += (agent,)
        if self._record is not None:
            self._note(agent)
            agent.start().wait()
        return agent

    def _note(self, *agents: Agent) -> None:
        """Note what agents are about to make."""
        record = leftovers.Record.load(self.directory)
        assert record is not None
        record.entries += [agent.name for agent in agents]
        if self.isolation == "linux":
            record.cgroup_roots += [leftovers.cgroup_root(self.directory, int(a.name[6:])) for a in agents]
        record.save()

    def start(self) -> Self:
        """Clean up after an earlier owner, start everything, wait until all agents are registered.

        Raises:
            Conflict: The directory is another living cluster's.
            BadConfiguration: Mesos refuses a flag; the message has its text.
            Unavailable: Something is missing, or does not come up.
        """
        library = fetch.libmesos()
        self._record = leftovers.claim(self.directory)
        try:
            self._record.entries += ["libexec", "master"]
            self._record.save()
            helpers.write(self.directory / "libexec", library)
            self._note(*self.agents)
            self.master.start().wait()
            for agent in self.agents:
                agent.start()
            for agent in self.agents:
                agent.wait()
        except BaseException:
            self.stop(grace_s=0)
            raise
        return self

    def stop(self, *, grace_s: float = 6.0) -> None:
        """End and remove everything; harmless if nothing runs. Agents are asked first: they unregister and
        shut their executors down, for which those have `executor_shutdown_grace_period`, by default 5 s.

        Raises:
            Conflict: Something would not go away; the message names it.
        """
        if self._record is None:
            return
        for process in (self.master, *self.agents):
            process.send(signal.SIGCONT)
        for agent in self.agents:
            agent.send(signal.SIGUSR1)
        deadline = time.monotonic() + grace_s
        while any(agent.running for agent in self.agents) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in (*self.agents, self.master):
            process.kill()
        leftovers.remove(leftovers.Record.load(self.directory) or self._record)
        self._record = None

    @staticmethod
    def clean_up(directory: Path) -> None:
        """As `leftovers.clean_up`."""
        leftovers.clean_up(directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _common(directory: Path, ip: str, port: int) -> dict[str, str]:
    return {"work_dir": str(directory / "work"), "ip": ip, "port": str(port), "hostname": ip}


def choose_isolation(wish: Isolation) -> Literal["linux", "posix"]:
    """`linux` (cgroups) for root on a host with cgroup v1 controllers, else `posix`, unless wished otherwise.

    Raises:
        Unavailable: linux is wished and impossible.
    """
    mounted = {path for path in leftovers.hierarchies() if os.access(path, os.W_OK)}
    missing = [name for name in ("cpu", "cpuacct", "memory", "freezer") if _CGROUPS / name not in mounted]
    if wish == "linux" and (missing or os.geteuid()):
        lack = f"no writable {_CGROUPS}/{{{','.join(missing)}}} of cgroup v1" if missing else "not root"
        raise Unavailable(f"no isolation by cgroups: {lack}", remedy="use isolation posix")
    return "posix" if missing or os.geteuid() or wish == "posix" else "linux"


def free_port(ip: str = "127.0.0.1") -> int:
    """A TCP port that nothing uses now.

    Raises:
        Unavailable: None was found.
    """
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((ip, port))
            return port
    raise Unavailable(f"no free port on {ip}", remedy="is it an address of this machine?")
