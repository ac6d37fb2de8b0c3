"""Life cycle of MPS daemons: one for each card and UNIX user that share it, made by the first share, adopted
by the next.

The ledger's undo of the card's row ends a daemon. It is no child of an executor: it has cgroups of its own in
every hierarchy, so that no task's end kills it, and its identity (pid, start) is noted beside its pipes. It
is made and ended only in the card's turn (`Ledger.turn`). A task gets one directory of pipes, the shared
memory of its domain, and environment variables that the job cannot override.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from isolator.devices import cgroups
from isolator.devices.cgroup_names import CgroupNames
from isolator.devices.cgroups import OWN_ROOT, Cgroup, make_directory
from isolator.devices.rules import Rule
from isolator.host import processes
from isolator.shares.mps import compute_mode
from isolator.shares.mps.compute_mode import Nvml
from isolator.shares.mps.life import State
from mesos_gpu.adapters.mps2 import Mps2
from mesos_gpu.adapters.mps3 import NAME as SERVER_NAME
from mesos_gpu.adapters.mps3 import Mps3
from mesos_gpu.adapters.mps_control import (
    LOGS,
    PIPES,
    PROGRAM,
    Absent,
    Busy,
    Control,
    Limits,
    Mps,
    Silent,
    too_long,
)
from mesos_gpu.adapters.proc import boot_id, start_ticks
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.digest import blake2b

KIND: Final = "mps"  # kind of a card's row in the ledger
ROOT: Final = Path("/run/mesos-gpu/mps")
#: Path of a domain's pipes in a task: mounted over the directory that has the pipes of all domains on the
#: host.
TASK_PIPES: Final = str(ROOT)
TASK_SHARED_MEMORY: Final = "/dev/shm"  # nosec B108 # a mount point
START_S: Final = 10.0
QUIT_S: Final = 2.0
DRAIN_S: Final = 10.0
_PAUSE_S: Final = 0.002
_DRAIN_PAUSE_S: Final = 0.05
#: Shell script: joins cgroups, starts a daemon in the background with its domain's shared memory at /dev/shm,
#: and prints its pid.
_START: Final = """
set -e
shared=$1 log=$2 count=$3; shift 3
while [ "$count" -gt 0 ]; do echo 0 > "$1/cgroup.procs"; shift; count=$((count - 1)); done
unshare --mount /bin/sh -c 'mount --bind "$1" /dev/shm; shift; exec "$@"' sh "$shared" "$@" </dev/null >>"$log" 2>&1 &
echo $!
"""
_MEMORY: Final = (
    "mount",
    "-t",
    "tmpfs",
    "-o",
    "mode=1777,nosuid,nodev,noexec,size={percent}%,nr_inodes={files}",
)
#: Percent of the host's memory that /dev/shm of all domains together may use: Linux' default for one
#: tmpfs(5).
_ALL_MEMORY: Final = 50
# in /dev/shm of one domain; each takes about 1 KiB of kernel memory that no task is charged for
MAX_FILES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Domain:
    """A card and the user whose tasks share it by one daemon. Its text form is the ledger's row of the card.

    Attributes:
        gpu: Id of the card.
        uid: User id. 0 for a server of root that has tasks of several users; tasks of root are never clients.
        protocol: MPS protocol, 2 or 3.
    """

    gpu: GpuId
    uid: int
    protocol: int = 2

    @property
    def key(self) -> str:
        """Eight hexadecimal digits for names of files, as paths of sockets must be short."""
        return blake2b(f"{self.gpu} {self.uid}".encode(), digest_size=4).hexdigest()

    def __str__(self) -> str:
        return f"{self.gpu} {self.uid} {self.protocol}"

    @classmethod
    def of(cls, text: str) -> "Domain":
        """Parse the text of a row.

        Raises:
            BadConfiguration: The text is invalid.
        """
        match text.split():
            case [gpu, uid, ("2" | "3") as protocol] if uid.isdecimal():
                return cls(GpuId(gpu), int(uid), int(protocol))
        raise BadConfiguration(
            f"the ledger has a row of MPS that says {text!r}", remedy="run the mesos_gpu that wrote it"
        )


@dataclass(frozen=True, slots=True)
class Host:
    """MPS settings of this host: programs, libraries and directories.

    Attributes:
        program: The control program; None if not installed.
        libraries: Directory of the driver's libraries that goes before the host's, or None.
        nvml: Bindings that set compute modes; None leaves modes as they are.
        root: Directory of pipes, notes and locks.
        cards: Number of cards of the host; each domain gets an equal part of the memory for all.
    """

    program: Path | None
    libraries: Path | None = None
    nvml: Nvml | None = None
    root: Path = ROOT
    cards: int = 1

    def pipes(self, domain: Domain) -> Path:
        """Return the directory of a domain's sockets."""
        return self.root / domain.key

    def beside(self, domain: Domain, name: str) -> Path:
        """Return the path of a file of a domain that its tasks do not see."""
        return self.root / f"{domain.key}.{name}"

    def logs(self, domain: Domain) -> tuple[Path, ...]:
        """Return the logs of the daemon and, by protocol 3, of its server. Source: NVIDIA's MPS
        documentation, "Logging".
        """
        servers = (self.beside(domain, "logs") / SERVER_NAME / "server.log",) if domain.protocol == 3 else ()
        return (self.beside(domain, "log"), *servers)

    def memory(self, domain: Domain) -> Path:
        """Return the file system that is /dev/shm for a domain's daemon and tasks."""
        return self.beside(domain, "shm")

    def mps(self, domain: Domain) -> Mps:
        """Return a client of the domain's daemon.

        Raises:
            Unavailable: This host has no control program.
        """
        if self.program is None:
            raise Unavailable(
                f"{PROGRAM} is not installed", remedy="install the driver's package that contains it"
            )
        control = Control(self.program, self.pipes(domain), self.libraries)
        return Mps3(control) if domain.protocol == 3 else Mps2(control)


@dataclass(frozen=True, slots=True)
class Joined:
    """Mounts and environment that make a task an MPS client.

    Attributes:
        mounts: Bind mounts (directory of the host, path in the task), in this order.
        env: Environment variables that the task must have.
    """

    mounts: tuple[tuple[str, str], ...]
    env: Mapping[str, str] = field(default_factory=dict)


def host_of(env: Mapping[str, str], libraries: Path | None = None) -> Host:
    """Return the MPS settings of this host.

    Args:
        env: Environment of an executor or a monitor.
        libraries: Directory of the driver's libraries, as in `Host`.
    """
    program = shutil.which(PROGRAM, path=f"{env.get('PATH', '')}:/usr/local/bin:/usr/bin:/usr/sbin")
    return Host(Path(program) if program else None, libraries, compute_mode.nvml_of(libraries))


# --- make, adopt and end daemons


def join(
    host: Host,
    domain: Domain,
    task: str,
    mine: Limits,
    others: Mapping[str, Limits],
    rules: Sequence[Rule] | None = None,
) -> Joined:
    """Admit a task to its domain's daemon, which is started if need be.

    To be called in the card's turn, after the ledger has the card's row.

    Args:
        host: MPS settings of this host.
        domain: Card and user of the task.
        mine: Limits of the task.
        others: Limits of the domain's other tasks, by task id.
        rules: Device rules for the daemon and its servers; None for any device.

    Raises:
        Unavailable: No daemon can be started; or it is sick, and other tasks must leave it first.
        OSError: Its directories or cgroups cannot be made.
    """
    most, mps = most_of((mine, *others.values())), host.mps(domain)
    if not _adopt(host, domain, mps, most, others):
        _start(host, domain, mps, most, rules)
    mps.admit(task, mine)
    client = mps.client(task, mine)
    return Joined(
        (
            (str(host.memory(domain)), TASK_SHARED_MEMORY),  # first, as the next mount hides its source
            (str(host.pipes(domain) / client.pipes), TASK_PIPES),
        ),
        {**client.env, PIPES: TASK_PIPES},
    )


def undo(host: Host, what: str) -> list[int]:
    """End the domain's daemon and restore the card's compute mode; harmless if it is gone.

    Args:
        host: MPS settings of this host.
        what: Text of the card's row; the ledger must have no task there.

    Returns:
        Pids of processes that could not be killed; everything else stays then, for another try.

    Raises:
        Unavailable: The compute mode cannot be restored.
        OSError: Something cannot be removed.
    """
    domain = Domain.of(what)
    if left := _end(host, domain):
        return left
    if host.memory(domain).is_mount():
        _on_host(["umount", "--lazy", str(host.memory(domain))])
    for path in (host.pipes(domain), host.memory(domain), host.beside(domain, "logs")):
        if path.exists():
            shutil.rmtree(path)
    # A child that was killed while writing the note of a compute mode leaves a temporary file.
    for path in (
        host.beside(domain, "daemon"),
        host.beside(domain, "log"),
        *host.root.glob(f"{domain.key}.mode.*"),
    ):
        path.unlink(missing_ok=True)
    return []


def drain(host: Host, domain: Domain, pids: Sequence[int], timeout_s: float = DRAIN_S) -> tuple[int, ...]:
    """End clients' work before they are killed: a client that dies within a kernel may take the server along.

    Args:
        host: MPS settings of this host.
        domain: Card and user of the task.
        pids: Processes of the task.
        timeout_s: Seconds for all of them together.

    Returns:
        Pids of those that are still clients; all pids if the daemon did not answer.
    """
    deadline, left = time.monotonic() + timeout_s, tuple(pids)
    if not left:
        return ()
    try:
        mps = host.mps(domain)
        while clients := [each for each in _clients(mps) if each[1] in pids]:
            left = tuple(pid for _, pid in clients)
            if time.monotonic() > deadline:
                return left
            for server, pid in clients:
                mps.terminate(server, pid)
            time.sleep(_DRAIN_PAUSE_S)
    except Absent:
        return ()
    except Unavailable:
        return left
    return ()


def _clients(mps: Mps) -> list[tuple[int, int]]:
    return [(server.pid, pid) for server in mps.servers() for pid in mps.clients(server.pid)]


def most_of(limits: Sequence[Limits]) -> Limits:
    """Return the largest percentage and memory limit among these; no memory limit if one of them has none."""
    memory = [limit.memory_mib for limit in limits if limit.memory_mib is not None]
    return Limits(max(limit.percent for limit in limits), max(memory) if len(memory) == len(limits) else None)


def _adopt(host: Host, domain: Domain, mps: Mps, most: Limits, others: Mapping[str, Limits]) -> bool:
    """Return whether there is a usable daemon; if so, it knows the limits. End one that is unusable and has
    no tasks.

    Raises:
        Unavailable: It is unusable and has other tasks, or cannot be ended.
    """
    state = State.GONE
    if daemon_pid(host, domain) is not None:
        try:
            mps.open(domain.gpu, domain.uid, most)
            return True
        except Silent:
            state = State.HUNG
        except Absent:
            state = State.STARTING  # and the executor that started it has died
    if others:
        raise Unavailable(
            f"the MPS daemon of {domain.gpu} is {state.value}, and its {len(others)} other tasks have not left it",
            remedy="none needed: they are moved, and the next share starts a new daemon",
        )
    if left := _end(host, domain, mode=False):
        raise Unavailable(
            f"processes {left} of the MPS daemon of {domain.gpu} would not die",
            remedy="end them; if they cannot be killed, reboot the host",
        )
    return False


def daemon_pid(host: Host, domain: Domain) -> int | None:
    """Return the pid of the noted daemon if that very process still runs, else None.

    None also for a note that was cut short, as by a kill: the next share then ends what is in the daemon's
    cgroups.
    """
    try:
        pid, ticks, boot = parsed(host.beside(domain, "daemon").read_text())
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return pid if boot == boot_id() and start_ticks(pid) == ticks else None


def _start(host: Host, domain: Domain, mps: Mps, most: Limits, rules: Sequence[Rule] | None) -> None:
    """Start the daemon, wait until it answers, and note its identity.

    Raises:
        Unavailable: It cannot be started, or the card's compute mode cannot be set.
    """
    host.root.mkdir(parents=True, exist_ok=True)
    host.root.chmod(0o700)  # only root may enter; a task gets its own directory mounted
    pipes = host.pipes(domain)
    if why := too_long(pipes):
        raise Unavailable(
            f"{pipes} cannot hold an MPS daemon's pipes: {why}", remedy="choose a shorter directory"
        )
    change = None
    if host.nvml is not None:
        change = compute_mode.begin_exclusive(host.nvml, domain.gpu, host.beside(domain, "mode"))
    try:
        _make_directories(host, domain)
        pid = _spawn(host, domain, mps, most, rules)
        _await(host, domain, mps, most, pid)
    finally:
        why = change.wait() if change is not None else ""
    if why:
        _end(host, domain, mode=False)
        raise Unavailable(
            f"{domain.gpu} cannot be shared by MPS: {why}",
            remedy="see the driver's log (dmesg); use another method of sharing",
        )
    # Last: a daemon without a note is ended by the next share, whatever was left undone.
    host.beside(domain, "daemon").write_text(json.dumps([pid, start_ticks(pid), boot_id()]))


def _make_directories(host: Host, domain: Domain) -> None:
    """Make the domain's directories, with a tmpfs for its shared memory."""
    if host.pipes(domain).exists():  # left by a daemon that was killed
        shutil.rmtree(host.pipes(domain))
    host.pipes(domain).mkdir(mode=0o755)
    host.beside(domain, "logs").mkdir(exist_ok=True)
    memory = host.memory(domain)
    memory.mkdir(exist_ok=True)
    if not memory.is_mount():
        percent = max(_ALL_MEMORY // host.cards, 1)
        options = [option.format(percent=percent, files=MAX_FILES) for option in _MEMORY]
        _on_host([*options, "mesos-gpu-mps", str(memory)])
    if not memory.is_mount():
        raise Unavailable(
            f"{memory} was mounted, but executors do not see it",
            remedy="give agents and executors the host's mounts, or let those of /run propagate to them",
        )


def _on_host(command: list[str]) -> None:
    """Run a command in the host's mount namespace, so that executors of all tasks see what it mounts."""
    try:
        elsewhere = os.readlink("/proc/1/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    except PermissionError:
        elsewhere = False
    enter = ["nsenter", "--target", "1", "--mount"] if elsewhere else []
    with _in_time(command[0]):
        done = subprocess.run(
            [*enter, *command],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode:
        raise Unavailable(
            f"{command[0]} failed: {done.stderr.strip()}", remedy="run agents as root of the host"
        )


@contextlib.contextmanager
def _in_time(what: str) -> Iterator[None]:
    """Turn the expiry of a command's deadline into an error of ours.

    Raises:
        Unavailable: In place of TimeoutExpired.
    """
    try:
        yield
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{what} did not end within {START_S:g} s",
            remedy="none needed: it is tried again; if that fails, see what keeps the host busy",
        ) from None


def _spawn(host: Host, domain: Domain, mps: Mps, most: Limits, rules: Sequence[Rule] | None) -> int:
    """Start the daemon in its own cgroups, restricted to its devices; return its pid."""
    groups = own_cgroups(domain)
    for group in groups:
        _make_group(group)
    for group in groups:
        if rules is not None and group in _of_devices(groups):
            group.allow(rules)
    arguments, more = mps.daemon(most, across_users=domain.uid == 0)
    paths = [str(group.path) for group in groups]
    with processes.not_adopting(), _in_time(f"the start of an MPS daemon for {domain.gpu}"):
        done = subprocess.run(
            ["/bin/sh", "-c", _START, "sh", host.memory(domain), host.beside(domain, "log"),
             str(len(paths)), *paths, mps.control.program, *arguments],
            env={**mps.control.environment(), "CUDA_VISIBLE_DEVICES": domain.gpu,
                 LOGS: str(host.beside(domain, "logs")), **more},
            cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_S, check=False,
            start_new_session=True,
        )  # fmt: skip
    if done.returncode or not done.stdout.strip().isdecimal():
        raise Unavailable(
            f"an MPS daemon for {domain.gpu} cannot be started: {done.stderr.strip() or done.stdout.strip()}",
            remedy="run agents as root, with cgroups that they may make",
        )
    return int(done.stdout)


def _await(host: Host, domain: Domain, mps: Mps, most: Limits, pid: int) -> None:
    """Wait until the daemon answers; end it and raise Unavailable if it exits or takes too long."""
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(Absent, Silent, Busy):
            if (host.pipes(domain) / "control").exists():
                mps.open(domain.gpu, domain.uid, most)
                return
        if start_ticks(pid) is None or time.monotonic() > deadline:
            message = _last_words(host.beside(domain, "log"))
            _end(host, domain, mode=False)
            raise Unavailable(
                f"the MPS daemon of {domain.gpu} does not start: {message}",
                remedy="see the driver's log (dmesg)",
            )
        time.sleep(_PAUSE_S)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"


def _end(host: Host, domain: Domain, *, mode: bool = True) -> list[int]:
    """Ask the daemon to quit, then kill all processes in its cgroups; return the pids of those that survive.

    Args:
        mode: Whether to restore the card's compute mode.

    Raises:
        Unavailable: The compute mode cannot be restored.
    """
    if (pid := daemon_pid(host, domain)) is not None:
        with contextlib.suppress(Unavailable):
            host.mps(domain).quit(QUIT_S)
        processes.send([pid], 15)
    # Processes that cannot be killed are in all cgroups: wait for them in one only, as others wait for the
    # card's turn.
    left = next((left for group in own_cgroups(domain) if (left := group.remove())), [])
    if left or not mode or host.nvml is None:
        return left
    if why := compute_mode.begin_undo(host.nvml, domain.gpu, host.beside(domain, "mode")).wait():
        raise Unavailable(
            f"the compute mode of {domain.gpu} cannot be restored: {why}",
            remedy="none needed: it is tried again",
        )
    return []


def member_of(what: str) -> Callable[[int], bool]:
    """Return a function that tells whether a process is the daemon of a domain or one of its servers.

    Args:
        what: Text of the card's row in the ledger.
    """
    name, names_in = _group_of(Domain.of(what)), CgroupNames()
    return lambda pid: bool(names_in.of(pid, {name}))


def _group_of(domain: Domain) -> str:
    return f"mps-{domain.key}"


def own_cgroups(domain: Domain, root: Path = Path("/")) -> list[Cgroup]:
    """Return the daemon's cgroup in each mounted hierarchy: left in a task's cgroup, it would keep that task
    from ending.

    Source: cgroups(7); hierarchies without a controller of their own (name=systemd) count, too.
    """
    groups: dict[str, Cgroup] = {}
    for line in (root / "proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(maxsplit=2)
        hierarchy = "2" if kind == "cgroup2" else ",".join(sorted(set(options.split(",")) - {"rw", "ro"}))
        if kind in ("cgroup", "cgroup2") and hierarchy not in groups:
            point = Path(cgroups.unescaped(before.split()[4]))
            version: cgroups.Version = "cgroup2" if kind == "cgroup2" else "cgroup1"
            groups[hierarchy] = Cgroup(version, point / OWN_ROOT / _group_of(domain), own=True)
    return list(groups.values())


def _of_devices(groups: Sequence[Cgroup]) -> list[Cgroup]:
    """Return the cgroups that control devices: those of version 1 with that controller, else those of version
    2.
    """
    first = [group for group in groups if (group.path / "devices.list").exists()]
    return first or [group for group in groups if group.version == "cgroup2"]


def _make_group(group: Cgroup) -> None:
    for path in (group.path.parent, group.path):
        make_directory(path)
        # version 1: no process can join a cgroup where these are empty
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = path / name
            if group.version == "cgroup1" and file.exists() and not file.read_text().strip():
                file.write_text((path.parent / name).read_text())
