"""A daemon of NVIDIA's Multi-Process Service for each card and UNIX user that share it: made by the first share,
adopted by the next, ended by the ledger's undo of the card's row.

It is nobody's child: it has cgroups of its own in every hierarchy, so that no task's end takes it along, and what it
is known by (pid, start) is noted beside its pipes. It is made and ended in the card's turn (`Ledger.turn`) only.
What a task gets is one directory of pipes, the shared memory of its domain, and variables that it does not choose.
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

KIND: Final = "mps"  # of a card's row in the ledger
ROOT: Final = Path("/run/mesos-gpu/mps")
#: Where a task has the pipes of its domain: over the directory that has everybody's on the host.
TASK_PIPES: Final = str(ROOT)
TASK_SHARED_MEMORY: Final = "/dev/shm"  # nosec B108 # a place to mount over
START_S: Final = 10.0
QUIT_S: Final = 2.0
DRAIN_S: Final = 10.0
_PAUSE_S: Final = 0.002
_DRAIN_PAUSE_S: Final = 0.05
#: Joins cgroups, leaves behind a daemon that has its domain's shared memory for /dev/shm, and says its pid.
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
#: Percent of the host's memory that /dev/shm of all domains may have: what Linux gives one such file system, tmpfs(5).
_ALL_MEMORY: Final = 50
MAX_FILES: Final = 1 << 16  # in that of one domain; each takes about 1 KiB that nobody's memory counts


@dataclass(frozen=True, slots=True)
class Domain:
    """A card and the user who shares it with nobody else. Its text is what the ledger's row of the card says.

    Attributes:
        gpu: The card.
        uid: Of the user; 0: a server of root has the tasks of several, as no task of root is ever a client.
        protocol: 2 or 3.
    """

    gpu: GpuId
    uid: int
    protocol: int = 2

    @property
    def key(self) -> str:
        """Eight hexadecimal digits: paths of sockets must be short."""
        return blake2b(f"{self.gpu} {self.uid}".encode(), digest_size=4).hexdigest()

    def __str__(self) -> str:
        return f"{self.gpu} {self.uid} {self.protocol}"

    @classmethod
    def of(cls, text: str) -> "Domain":
        """Read the text of a row.

        Raises:
            BadConfiguration: It is none.
        """
        match text.split():
            case [gpu, uid, ("2" | "3") as protocol] if uid.isdecimal():
                return cls(GpuId(gpu), int(uid), int(protocol))
        raise BadConfiguration(
            f"the ledger has a row of MPS that says {text!r}", remedy="run the mesos_gpu that wrote it"
        )


@dataclass(frozen=True, slots=True)
class Host:
    """What of this host the daemons need.

    Attributes:
        program: The control program; None: there is none.
        libraries: The driver's, before the host's; None: the host's.
        nvml: What sets compute modes; None: they are left alone.
        root: Where pipes, notes and locks are.
        cards: How many it has: of the memory for all domains, each card's gets an equal part.
    """

    program: Path | None
    libraries: Path | None = None
    nvml: Nvml | None = None
    root: Path = ROOT
    cards: int = 1

    def pipes(self, domain: Domain) -> Path:
        """The directory of a domain's sockets."""
        return self.root / domain.key

    def beside(self, domain: Domain, name: str) -> Path:
        """A file of a domain that its tasks do not see."""
        return self.root / f"{domain.key}.{name}"

    def logs(self, domain: Domain) -> tuple[Path, ...]:
        """What the daemon writes, and by protocol 3 its server. Source: NVIDIA's MPS documentation, "Logging"."""
        servers = (self.beside(domain, "logs") / SERVER_NAME / "server.log",) if domain.protocol == 3 else ()
        return (self.beside(domain, "log"), *servers)

    def memory(self, domain: Domain) -> Path:
        """The file system that is /dev/shm for a domain's daemon and tasks."""
        return self.beside(domain, "shm")

    def mps(self, domain: Domain) -> Mps:
        """The domain's daemon, to be asked and told.

        Raises:
            Unavailable: This host has no control program.
        """
        if self.program is None:
            raise Unavailable(
                f"{PROGRAM} is not on this host", remedy="install the driver's package that has it"
            )
        control = Control(self.program, self.pipes(domain), self.libraries)
        return Mps3(control) if domain.protocol == 3 else Mps2(control)


@dataclass(frozen=True, slots=True)
class Joined:
    """What a task needs to be a client.

    Attributes:
        mounts: Of each directory of the host where the task must have it; in this order.
        env: What its environment must say.
    """

    mounts: tuple[tuple[str, str], ...]
    env: Mapping[str, str] = field(default_factory=dict)


def host_of(env: Mapping[str, str], libraries: Path | None = None) -> Host:
    """This host, as its operator has set it up.

    Args:
        env: The environment of an executor or a monitor.
        libraries: As of `Host`.
    """
    program = shutil.which(PROGRAM, path=f"{env.get('PATH', '')}:/usr/local/bin:/usr/bin:/usr/sbin")
    return Host(Path(program) if program else None, libraries, compute_mode.nvml_of(libraries))


# --- to make, to adopt, to end


def join(
    host: Host,
    domain: Domain,
    task: str,
    mine: Limits,
    others: Mapping[str, Limits],
    rules: Sequence[Rule] | None = None,
) -> Joined:
    """Have a daemon of that domain, and have it know the task.

    Args:
        host: This host.
        domain: The task's card and user; the ledger's row of the card says it already, and it is the card's turn.
        task: Its id.
        mine: What it may use.
        others: The limits of the domain's other tasks, by their ids.
        rules: Device rules for the daemon and its servers; None: any device.

    Raises:
        Unavailable: There is none, and none can be had; or it is sick, and has other tasks that are to leave first.
        OSError: Its directories or cgroups cannot be made.
    """
    most, mps = most_of((mine, *others.values())), host.mps(domain)
    if not _adopt(host, domain, mps, most, others):
        _start(host, domain, mps, most, rules)
    mps.admit(task, mine)
    client = mps.client(task, mine)
    return Joined(
        (
            (str(host.memory(domain)), TASK_SHARED_MEMORY),  # first: the other hides where it comes from
            (str(host.pipes(domain) / client.pipes), TASK_PIPES),
        ),
        {**client.env, PIPES: TASK_PIPES},
    )


def undo(host: Host, what: str) -> list[int]:
    """End the domain's daemon and give the card its compute mode back; harmless if it is gone.

    Args:
        host: This host.
        what: The text of the card's row; the ledger has no task there.

    Returns:
        Processes that would not die; then all stays, to be tried again.

    Raises:
        Unavailable: The compute mode cannot be given back.
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
    # A child that was killed while it noted a compute mode has left a part of the note.
    for path in (
        host.beside(domain, "daemon"),
        host.beside(domain, "log"),
        *host.root.glob(f"{domain.key}.mode.*"),
    ):
        path.unlink(missing_ok=True)
    return []


def drain(host: Host, domain: Domain, pids: Sequence[int], timeout_s: float = DRAIN_S) -> tuple[int, ...]:
    """Have clients' work end before they are killed: one that dies within a kernel may take the server along.

    Args:
        host, domain: As of `join`.
        pids: Processes of the task.
        timeout_s: For all.

    Returns:
        Those that are clients still; all that could not be asked about.
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
    """The most that any of them allows."""
    memory = [each.memory_mib for each in limits if each.memory_mib is not None]
    return Limits(max(each.percent for each in limits), max(memory) if len(memory) == len(limits) else None)


def _adopt(host: Host, domain: Domain, mps: Mps, most: Limits, others: Mapping[str, Limits]) -> bool:
    """Whether there is a daemon, which knows the limits then; one that cannot be used is ended if nobody uses it."""
    state = State.GONE
    if daemon_pid(host, domain) is not None:
        try:
            mps.open(domain.gpu, domain.uid, most)
            return True
        except Silent:
            state = State.HUNG
        except Absent:
            state = State.STARTING  # and whoever started it has died
    if others:
        raise Unavailable(
            f"the MPS daemon of {domain.gpu} is {state.value}, and its {len(others)} other tasks have not left it",
            remedy="none: they are moved, and the next share makes it anew",
        )
    if left := _end(host, domain, mode=False):
        raise Unavailable(
            f"processes {left} of the MPS daemon of {domain.gpu} would not die", remedy="end them"
        )
    return False


def daemon_pid(host: Host, domain: Domain) -> int | None:
    """The pid of the daemon that was noted, if this very process runs; None: it does not, or its note was cut short,
    as by a kill: then the next share ends what is in its cgroups, as without a note."""
    try:
        pid, ticks, boot = parsed(host.beside(domain, "daemon").read_text())
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return pid if boot == boot_id() and start_ticks(pid) == ticks else None


def _start(host: Host, domain: Domain, mps: Mps, most: Limits, rules: Sequence[Rule] | None) -> None:
    """Make the daemon, and wait until it answers."""
    host.root.mkdir(parents=True, exist_ok=True)
    host.root.chmod(0o700)  # nobody but root passes through; a task has its own directory mounted
    pipes = host.pipes(domain)
    if why := too_long(pipes):
        raise Unavailable(
            f"{pipes} cannot have an MPS daemon's pipes: {why}", remedy="choose a shorter directory"
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
            f"{domain.gpu} cannot be shared by MPS: {why}", remedy="see the driver; use another method"
        )
    # Only now: what has no note is ended by the next share, whatever was left undone.
    host.beside(domain, "daemon").write_text(json.dumps([pid, start_ticks(pid), boot_id()]))


def _make_directories(host: Host, domain: Domain) -> None:
    if host.pipes(domain).exists():  # of a daemon that was killed
        shutil.rmtree(host.pipes(domain))
    host.pipes(domain).mkdir(mode=0o755)
    host.beside(domain, "logs").mkdir(exist_ok=True)
    memory = host.memory(domain)
    memory.mkdir(exist_ok=True)
    if not memory.is_mount():
        percent = max(_ALL_MEMORY // host.cards, 1)
        options = [each.format(percent=percent, files=MAX_FILES) for each in _MEMORY]
        _on_host([*options, "mesos-gpu-mps", str(memory)])
    if not memory.is_mount():
        raise Unavailable(
            f"{memory} was mounted, and is not seen by executors",
            remedy="give agents and executors the host's mounts, or let those of /run propagate to them",
        )


def _on_host(command: list[str]) -> None:
    """Run a command in the host's mount namespace: what is mounted there, executors of all tasks see."""
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
    """Run a command within a deadline.

    Raises:
        Unavailable: In place of TimeoutExpired.
    """
    try:
        yield
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{what} did not end within {START_S:g} s",
            remedy="it is tried again; see what the host is busy with",
        ) from None


def _spawn(host: Host, domain: Domain, mps: Mps, most: Limits, rules: Sequence[Rule] | None) -> int:
    groups = own_cgroups(domain)
    for group in groups:
        _make_group(group)
    for group in groups:
        if rules is not None and group in _of_devices(groups):
            group.allow(rules)
    arguments, more = mps.daemon(most, across_users=domain.uid == 0)
    paths = [str(group.path) for group in groups]
    with processes.not_adopting(), _in_time(f"what starts an MPS daemon for {domain.gpu}"):
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
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(Absent, Silent, Busy):
            if (host.pipes(domain) / "control").exists():
                mps.open(domain.gpu, domain.uid, most)
                return
        if start_ticks(pid) is None or time.monotonic() > deadline:
            said = _last_words(host.beside(domain, "log"))
            _end(host, domain, mode=False)
            raise Unavailable(
                f"the MPS daemon of {domain.gpu} does not start: {said}", remedy="see the driver"
            )
        time.sleep(_PAUSE_S)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it says nothing"


def _end(host: Host, domain: Domain, *, mode: bool = True) -> list[int]:
    """Ask it to go, then kill all that is in its cgroups; what would not die. `mode`: gives the compute mode back."""
    if (pid := daemon_pid(host, domain)) is not None:
        with contextlib.suppress(Unavailable):
            host.mps(domain).quit(QUIT_S)
        processes.send([pid], 15)
    # Who would not die is in each of them, and is waited for once: others wait for the card's turn.
    left = next((left for group in own_cgroups(domain) if (left := group.remove())), [])
    if left or not mode or host.nvml is None:
        return left
    if why := compute_mode.begin_undo(host.nvml, domain.gpu, host.beside(domain, "mode")).wait():
        raise Unavailable(
            f"the compute mode of {domain.gpu} cannot be given back: {why}", remedy="it is tried again"
        )
    return []


def member_of(what: str) -> Callable[[int], bool]:
    """Tells whether a process is a domain's daemon or one of its servers. `what`: the text of the card's row."""
    name, names_in = _group_of(Domain.of(what)), CgroupNames()
    return lambda pid: bool(names_in.of(pid, {name}))


def _group_of(domain: Domain) -> str:
    return f"mps-{domain.key}"


def own_cgroups(domain: Domain, root: Path = Path("/")) -> list[Cgroup]:
    """A cgroup in each hierarchy that is mounted: a process that stays in one of a task's keeps that task from ending.

    Source: cgroups(7); the hierarchies without a controller of their own (name=systemd) count, too.
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
    """Pick those that control devices: of version 1 the one with that controller, else version 2."""
    first = [group for group in groups if (group.path / "devices.list").exists()]
    return first or [group for group in groups if group.version == "cgroup2"]


def _make_group(group: Cgroup) -> None:
    for path in (group.path.parent, group.path):
        make_directory(path)
        for name in ("cpuset.cpus", "cpuset.mems"):  # of version 1: nobody may join one where they are empty
            file = path / name
            if group.version == "cgroup1" and file.exists() and not file.read_text().strip():
                file.write_text((path.parent / name).read_text())
