"""Client of the host's Docker Engine for a task in a container, over its Unix socket, without the command
`docker`.

The executor stays on the host, and handles the task's output and its end; the engine holds its processes.
Everything that a container may do is set explicitly, never left to the engine's defaults: a host whose
default runtime is NVIDIA's would add cards to every image that asks for them. Source: the Docker Engine API,
1.40 to 1.51 (api/swagger.yaml of moby); runc 1.1 for the effects.
"""

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from isolator.agent.docker_images import SEE_LOGIN, LocalImage, local_image, quoted, refuses, tagged
from isolator.agent.docker_output import Output
from isolator.agent.http import HttpConnection, Response
from isolator.host.paths import FORBIDDEN, overlap
from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.wire.body import parsed

T = TypeVar("T")

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
OLDEST_API: Final = (1, 40)  # Docker 19.03: the first whose binds can leave out what is mounted below them
#: Time limit of one answer: a start on a busy host takes long, and a start that hangs would never end.
TIMEOUT_S: Final = 120.0
BACK_S: Final = 60.0  # how long an engine may be away during a restart
LATE_OOM_S: Final = 0.5
SIGKILLED: Final = 137
#: Capabilities of a container's root: those for installing software and changing to a user. Without MKNOD it
#: cannot make nodes, without NET_RAW and NET_BIND_SERVICE it cannot forge traffic on the host's network.
_ROOTS_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# label with the cgroups made for the container, which are removed after it
CGROUPS_LABEL: Final = "mesos_gpu.cgroups"
_NONSENSE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError)
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_NUMBERS: Final = re.compile(r"\d+:\d+")


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Settings of a container for one task. Without `command` (for /bin/sh -c) and `argv`, the image's own
    entrypoint runs.

    Raises:
        BadConfiguration: The settings are invalid, or would give the host to the task.
    """

    image: str
    user: str  # "uid:gid" in numbers, as a name would be looked up in the image, where it may mean root
    command: str | None = None
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()  # arguments of the image's own entrypoint, in place of the image's
    env: Mapping[str, str] = field(default_factory=dict)  # overrides the image's variables
    groups: tuple[int, ...] = ()  # supplementary groups; the image's /etc/group adds none
    # Character devices: path on the host, path inside, "rw" or "r".
    devices: tuple[tuple[str, str, str], ...] = ()
    binds: tuple[tuple[str, str, bool], ...] = ()  # path on the host, path inside, read-only
    cpus: float = 0.0  # 0 for the host's usual share
    cpu_limit: float = 0.0  # 0 if idle CPUs may be used
    mem_mib: int = 0  # 0: no limit
    pids: int = 0  # processes and threads; 0 for no limit
    cgroup_parent: str | None = None  # parent cgroup, "/mesos/<container>"; None for the engine's own
    labels: Mapping[str, str] = field(default_factory=dict)
    # ports on the engine's bridge; None for the host's network
    bindings: tuple[PortBinding, ...] | None = None
    options: DockerOptions = field(default_factory=DockerOptions)  # labels in it are not used
    own_binds: tuple[tuple[str, str, bool], ...] = ()  # binds of ours, whose paths the task cannot choose

    def __post_init__(self) -> None:
        if not _NUMBERS.fullmatch(self.user):
            raise BadConfiguration(f"user {self.user!r} is not uid:gid", remedy="write both as numbers")
        if sum((self.command is not None, bool(self.argv), bool(self.args))) > 1:
            raise BadConfiguration("a task has command, argv or args, not both", remedy="leave one out")
        for path in (*(inside for _, inside, _ in self.devices), *(bind[1] for bind in self.binds)):
            if not path.startswith("/") or os.path.normpath(path) in ("/", "/dev", "/proc", "/sys"):
                raise BadConfiguration(
                    f"nothing can be mounted at {path!r} of an image", remedy="choose another path"
                )


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts that an engine reports about itself."""

    version: str
    cgroup_driver: str  # "cgroupfs" or "systemd"
    live_restore: bool  # whether containers outlive a restart of the engine


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a container; `exit_status` as a shell reports it, 128 + N after signal N."""

    exit_status: int
    oom_killed: bool  # the kernel ended a process of it for lack of memory
    error: str = ""  # error message of the engine


@dataclass(frozen=True, slots=True)
class _State:
    """State of a container as the Docker Engine reports it."""

    status: str
    running: bool
    pid: int
    exit_status: int
    oom_killed: bool
    error: str


class DockerEngine:
    """Client of one engine; thread-safe, each call makes a connection of its own.

    Args:
        socket_path: Unix socket of the engine.
        back_s: Seconds that `wait` waits for an engine that went away.

    Raises:
        Unavailable: From every method, if no engine answers, or this process may not talk to it.
        MesosGpuError: From every method, if the engine refuses; the message has its text.
    """

    def __init__(self, socket_path: str = DEFAULT_SOCKET, *, back_s: float = BACK_S) -> None:
        self._socket_path, self._back_s = socket_path, back_s
        self._prefix = ""

    def facts(self) -> EngineFacts:
        """Return the engine's facts."""
        return self._request("GET", "/info", _facts)

    def image(self, name: str) -> LocalImage | None:
        """Return an image of this host; None if the host has none of that name."""
        try:
            return self._request("GET", f"/images/{quoted(name)}/json", local_image)
        except NotFound:
            return None

    def shown_digest(self, name: str, auth: str = "") -> str:
        """Ask the registry of an image, as the engine reaches it, for the image's manifest; return its digest.

        Args:
            name: Name of the image, with its registry.
            auth: Header X-Registry-Auth; empty to ask without a login.

        Raises:
            NotFound: The registry has no such image, or does not show it to this login.
            Unavailable: The registry cannot be asked.
        """
        path = f"/distribution/{quoted(tagged(name))}/json"
        try:
            with self._answer("GET", path, ask=f"image {name}", auth=auth) as answer:
                return str(parsed(answer.read())["Descriptor"]["digest"])
        except (NotFound, Unavailable):
            raise
        except MesosGpuError as error:
            if refuses(error.what):
                raise NotFound(error.what, remedy=SEE_LOGIN) from error
            why = error.what.rpartition(f"image {name}: ")[2]
            raise Unavailable(
                f"the registry of image {name} does not answer the Docker Engine: {why}",
                remedy="check that this host reaches the registry",
            ) from error

    def pull(self, name: str, auth: str = "") -> None:
        """Fetch an image.

        Args:
            name: Name of the image, with its registry.
            auth: Header X-Registry-Auth; empty to fetch it without a login.

        Raises:
            NotFound: No registry has it, or not for this login.
        """
        path = f"/images/create?fromImage={quoted(tagged(name))}"
        with self._answer("POST", path, ask=f"image {name}", auth=auth) as answer:
            while line := answer.readline():
                event = parsed(line)
                if "error" in event:
                    raise MesosGpuError(
                        f"image {name} could not be fetched: {event['error']}",
                        remedy="try again; if that does not help, ask the operator of the registry",
                    )

    def create(self, name: str, wish: ContainerSettings) -> str:
        """Make a container, not started yet; a dead one of that name is removed first.

        Below a `cgroup_parent` the container can have no device that the parent's own device list lacks: runc
        writes each rule to cgroup v1's devices.allow, the kernel refuses with EPERM, and `start` raises with
        its message. The engine's usual rules (c *:* m, b *:* m, c 10:200 rwm of older ones) are among them.
        With cgroup v2 the parent must hold no process of its own (cgroup-v2.rst, "no internal processes").

        Returns:
            Id of the container.

        Raises:
            NotFound: The image is not on this host.
            Conflict: A container of that name runs.
            BadConfiguration: A device is not one, a bind would give the host away, the image has no command,
                or the engine leaves its cgroups to systemd, which puts none below those of others.
        """
        _check_paths(wish)
        if wish.cgroup_parent and self.facts().cgroup_driver != "cgroupfs":
            raise BadConfiguration(
                "the Docker Engine leaves its cgroups to systemd: its containers cannot be below a Mesos container",
                remedy="start dockerd with --exec-opt native.cgroupdriver=cgroupfs",
            )
        with contextlib.suppress(NotFound):
            if self._state(name).running:
                raise Conflict(f"container {name} is running", remedy="end it first")
            self.remove(name)
        body = creation(wish, _missing_cgroups(wish.cgroup_parent))
        path = f"/containers/create?name={_named(name)}"
        return self._request("POST", path, lambda told: str(told["Id"]), body)

    def start(self, name: str) -> int:
        """Start a container; attach first, as earlier output is lost.

        Returns:
            Pid of its init on the host; 0 if it has ended already.

        Raises:
            BadConfiguration: The image does not have the program.
        """
        self._do("POST", f"/containers/{_named(name)}/start")
        return self._state(name).pid

    def attach(self, name: str) -> Output:
        """Attach to the container's output, before `start`.

        Copy the output in another thread; close it some time after `wait`, as an engine that restarts at that
        time may never end it.
        """
        path = f"/containers/{_named(name)}/attach?stream=1&stdout=1&stderr=1"

        def connect() -> tuple[HttpConnection, Response]:
            connection, answer = self._open("POST", path)
            connection.wait_for_ever()
            return connection, answer

        def running() -> bool:
            try:
                return self._patient_state(name).running
            except NotFound:
                return False

        return Output(connect, running)

    def wait(self, name: str) -> Ended:
        """Wait until the container ends, even over a restart of the engine; if that ended the container,
        `error` says so.

        Raises:
            NotFound: Another program removed the container.
            Unavailable: The engine went away and did not come back in time; the container may still run.
            Conflict: The container was never started.
        """
        went_away = False
        while True:
            try:
                with self._answer("POST", f"/containers/{_named(name)}/wait", for_ever=True) as answer:
                    answer.read()
                state = self._state(name)
            except Unavailable:
                went_away = True
                state = self._patient_state(name)
            if state.status == "created":
                raise Conflict(f"container {name} was never started", remedy="start it")
            if not state.running:
                break
        state = self._with_oom(name, state)
        error = state.error
        if went_away and not self.facts().live_restore:
            error = "the Docker Engine was stopped and ended its containers: its live-restore is off"
        return Ended(state.exit_status, state.oom_killed, error)

    def _with_oom(self, name: str, state: _State) -> _State:
        """Wait for a report of a lack of memory, which may reach the engine a moment later than the end."""
        deadline = time.monotonic() + LATE_OOM_S
        while state.exit_status == SIGKILLED and not state.oom_killed and time.monotonic() < deadline:
            time.sleep(0.05)
            state = self._state(name)
        return state

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the container's first process; harmless if it has ended.

        The kernel drops signals other than SIGKILL and SIGSTOP if the process has no handler
        (pid_namespaces(7)).
        """
        with contextlib.suppress(NotFound, Conflict):
            self._do("POST", f"/containers/{_named(name)}/kill?signal={number:d}")

    def remove(self, name: str) -> None:
        """End and remove the container, its anonymous volumes and the cgroups made for it; harmless if it is
        gone.
        """
        try:
            made = self._request("GET", f"/containers/{_named(name)}/json", _cgroups_made)
        except NotFound:
            return
        deadline = time.monotonic() + TIMEOUT_S
        with contextlib.suppress(NotFound):
            while not self._removed(name):
                if time.monotonic() > deadline:
                    raise Conflict(f"container {name} cannot be removed", remedy="see the engine's log")
                time.sleep(0.02)
        for path in reversed(made):
            with contextlib.suppress(OSError):  # another task's container is below it, or the cgroup is gone
                os.rmdir(path)

    def containers(self, label: str) -> dict[str, str]:
        """Return the names of all containers with a label, also ended ones, with its value, for cleanup after
        dead executors.
        """
        filters = quote(json.dumps({"label": [label]}))

        def pick(told: Any) -> dict[str, str]:
            return {entry["Names"][0].lstrip("/"): str(entry["Labels"][label]) for entry in told}

        return self._request("GET", f"/containers/json?all=1&filters={filters}", pick)

    # --- requests

    def _removed(self, name: str) -> bool:
        try:
            self._do("DELETE", f"/containers/{_named(name)}?force=1&v=1")
        except Conflict:  # another program is removing it
            return False
        return True

    def _state(self, name: str) -> _State:
        return self._request("GET", f"/containers/{_named(name)}/json", _state)

    def _patient_state(self, name: str) -> _State:
        deadline = time.monotonic() + self._back_s
        while True:
            try:
                return self._state(name)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _do(self, method: str, path: str) -> None:
        with self._answer(method, path) as answer:
            answer.read()

    def _request(self, method: str, path: str, pick: Callable[[Any], T], body: object = None) -> T:
        """Return the part of an answer that `pick` extracts; an answer without it is treated as not from an
        engine.
        """
        with self._answer(method, path, body) as answer:
            return pick(parsed(answer.read()))

    @contextlib.contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        ask: str = "",
        for_ever: bool = False,
        auth: str = "",
    ) -> Iterator[Response]:
        connection, answer = self._open(method, path, body, ask, auth)
        try:
            if for_ever:
                connection.wait_for_ever()
            yield answer
        except (OSError, *_NONSENSE) as error:  # the answer broke off, or is invalid
            raise self._gone(error) from error
        finally:
            connection.close()

    def _open(
        self, method: str, path: str, body: object = None, ask: str = "", auth: str = ""
    ) -> tuple[HttpConnection, Response]:
        connection = HttpConnection(self._socket_path, TIMEOUT_S)
        try:
            self._prefix = self._prefix or _prefix(connection)
            header = {"Content-Type": "application/json", **({"X-Registry-Auth": auth} if auth else {})}
            data = b"" if body is None else json.dumps(body).encode()
            answer = connection.request(method, self._prefix + path, data, header)
            if answer.status >= 400:
                raise _refusal(answer.status, answer.read(), ask or path.partition("?")[0])
        except (OSError, *_NONSENSE) as error:
            connection.close()
            raise self._gone(error) from error
        except MesosGpuError:
            connection.close()
            raise
        return connection, answer

    def _gone(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"no Docker Engine answers at {self._socket_path}: {error}",
            remedy="start it (systemctl start docker), or name its socket in MESOS_GPU_DOCKER_SOCKET",
        )


def creation(wish: ContainerSettings, cgroups_made: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the body of a request to /containers/create. Pure, except that it reads the host's memory if
    none is set.
    """
    root = wish.user.partition(":")[0].strip("0") == ""
    entrypoint = ["/bin/sh", "-c", wish.command] if wish.command is not None else list(wish.argv)
    return {
        "Image": wish.image,
        "User": wish.user,
        "Env": [f"{name}={value}" for name, value in wish.env.items()],
        **({"Entrypoint": entrypoint, "Cmd": []} if entrypoint else {}),
        **({"Cmd": list(wish.args)} if wish.args else {}),
        **({"WorkingDir": wish.options.directory} if wish.options.directory else {}),
        **({"Hostname": wish.options.hostname} if wish.options.hostname else {}),
        **({"StopTimeout": wish.options.stop_timeout_s} if wish.options.stop_timeout_s is not None else {}),
        "Labels": {**wish.labels, CGROUPS_LABEL: json.dumps(cgroups_made)},
        # the image's own would start processes that the job did not request
        "Healthcheck": {"Test": ["NONE"]},
        **({"ExposedPorts": {_port(each): {} for each in wish.bindings}} if wish.bindings else {}),
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            "Runtime": "runc",
            "Privileged": False,
            "CapDrop": ["ALL"],
            "CapAdd": list(_ROOTS_CAPABILITIES) if root else [],
            "SecurityOpt": ["no-new-privileges"],
            "Devices": [
                {"PathOnHost": outside, "PathInContainer": inside, "CgroupPermissions": access}
                for outside, inside, access in wish.devices
            ],
            "DeviceRequests": [],
            "DeviceCgroupRules": [],
            "Mounts": [_mount(*bind) for bind in (*wish.binds, *wish.own_binds)],
            "GroupAdd": [str(group) for group in wish.groups],
            "UsernsMode": "host",  # uids are the host's, even if the engine maps those of others
            "CgroupnsMode": "private",
            **_network(wish.bindings),
            "IpcMode": "private",
            **_limits(wish),
            "Init": wish.options.init,
            **({"ExtraHosts": list(wish.options.hosts)} if wish.options.hosts else {}),
            **({"Dns": list(wish.options.dns)} if wish.options.dns else {}),
            "AutoRemove": False,  # its exit status is read after its end
            "RestartPolicy": {"Name": "no"},
            # Its output is in the sandbox already.
            "LogConfig": {
                "Type": wish.options.log_driver or "none",
                "Config": dict(wish.options.log_options),
            },
            **({"CgroupParent": wish.cgroup_parent} if wish.cgroup_parent else {}),
        },
    }


def _limits(wish: ContainerSettings) -> dict[str, Any]:
    memory = wish.mem_mib << 20
    return {
        # Workers of one job pass tensors through /dev/shm (PyTorch's loaders, NCCL between its ranks); at
        # Docker's 64 MiB they die by SIGBUS. Its pages count against the memory limit, so that bounds them.
        "ShmSize": wish.options.shm_bytes
        or memory
        or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        "Memory": memory,
        "MemorySwap": memory,  # memory and swap together, so there is no swap
        # as with Mesos, idle CPUs may be used
        "CpuShares": max(2, round(wish.cpus * 1024)) if wish.cpus else 0,
        # The engine refuses limits above the number of CPUs.
        **({"NanoCpus": round(wish.cpu_limit * 1e9)} if 0 < wish.cpu_limit < (os.cpu_count() or 1) else {}),
        "PidsLimit": wish.pids,
        "Ulimits": [{"Name": u.name, "Soft": u.soft, "Hard": u.hard} for u in wish.options.ulimits],
    }


def _network(bindings: Sequence[PortBinding] | None) -> dict[str, Any]:
    if bindings is None:
        return {"NetworkMode": "host"}
    published: dict[str, list[dict[str, str]]] = {}
    for each in bindings:
        published.setdefault(_port(each), []).append({"HostPort": str(each.host_port)})
    # In a network of its own the task owns all ports; without this setting, low ports would need a
    # capability.
    return {
        "NetworkMode": "bridge",
        "PortBindings": published,
        "Sysctls": {"net.ipv4.ip_unprivileged_port_start": "0"},
    }


def _port(binding: PortBinding) -> str:
    return f"{binding.container_port}/{binding.protocol}"


def _mount(source: str, target: str, read_only: bool) -> dict[str, Any]:
    # Mounts below the source are left out, as they would be writable in a read-only bind.
    options = {"NonRecursive": True, "Propagation": "rprivate"}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}


def _check_paths(wish: ContainerSettings) -> None:
    for outside, _, _ in wish.devices:  # given a directory, the engine would take every node in it
        try:
            is_device = stat.S_ISCHR(os.lstat(outside).st_mode)
        except OSError as error:
            raise BadConfiguration(
                f"device {outside}: {error.strerror}", remedy="check the node on the host"
            ) from error
        if not is_device:
            raise BadConfiguration(f"{outside} is not a character device", remedy="name the node itself")
    for source, _, _ in wish.binds:
        real = os.path.realpath(source)
        for forbidden in map(os.path.realpath, FORBIDDEN):
            if overlap(real, forbidden):
                raise BadConfiguration(
                    f"{source} cannot be mounted in a container: it would have the host's {forbidden}",
                    remedy="mount a directory of the task's own",
                )


def _missing_cgroups(parent: str | None) -> tuple[str, ...]:
    """Return the cgroups on the way to `parent` that runc will make and never remove, outermost first."""
    missing = []
    for line in Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines() if parent else ():
        _, point, kind, _ = line.split(" ", 3)
        if kind in ("cgroup", "cgroup2"):
            path = Path(point) / str(parent).strip("/")
            ways = [path, *path.parents][: len(path.parts) - len(Path(point).parts)]
            missing += [str(way) for way in reversed(ways) if not way.exists()]
    return tuple(missing)


def _prefix(connection: HttpConnection) -> str:
    answer = parsed(connection.request("GET", "/version", b"", {}).read())
    spoken = answer.get("ApiVersion", "0.0")
    if tuple(map(int, spoken.split("."))) < OLDEST_API:
        raise Unavailable(
            f"the Docker Engine speaks API {spoken}, but 1.40 or newer is needed",
            remedy="install Docker 19.03 or later",
        )
    return f"/v{spoken}"


def _refusal(status: int, body: bytes, what: str) -> MesosGpuError:
    try:
        text = str(parsed(body)["message"])
    except _NONSENSE:
        text = body[:500].decode(errors="replace")
    text = f"the Docker Engine refuses {what}: {' '.join(text.split())}"
    if status in (401, 403):
        return NotFound(text, remedy=SEE_LOGIN)
    if status == 404:
        return NotFound(text, remedy="check the name")
    if status == 409:
        return Conflict(text, remedy="try again when it is free")
    if status == 400:
        return BadConfiguration(text, remedy="correct what the message names")
    return MesosGpuError(text, remedy="see the engine's log (journalctl -u docker)")


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadConfiguration(f"{name!r} cannot name a container", remedy="use letters, digits and _.-")
    return name


def _facts(told: Any) -> EngineFacts:
    return EngineFacts(
        str(told["ServerVersion"]), str(told["CgroupDriver"]), bool(told["LiveRestoreEnabled"])
    )


def _state(told: Any) -> _State:
    state = told["State"]
    return _State(
        state["Status"], state["Running"], state["Pid"], state["ExitCode"], state["OOMKilled"], state["Error"]
    )


def _cgroups_made(told: Any) -> list[str]:
    made: list[str] = parsed((told["Config"]["Labels"] or {}).get(CGROUPS_LABEL) or "[]")
    return made
