"""Record of what a cluster creates on this machine, written before it is created, and its removal.

The record is a JSON file in the cluster's directory. A cluster's own `stop` and the clean-up after an owner that was
killed use the same code, so that the second is tested as often as the first.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from mesos_gpu.errors import Conflict, Damaged
from mesos_gpu.local import network

RECORD: Final = "cluster.json"
#: Environment variable of every master and agent with the cluster's directory.
MARK: Final = "MESOS_GPU_CLUSTER"
#: MARK, and variables that Mesos sets for executors and tasks: paths below the agent's directories.
_MARKS: Final = (MARK, "MESOS_DIRECTORY", "MESOS_SANDBOX")
_CGROUP_ROOT: Final = re.compile(r"mesos_gpu-[0-9a-f]{10}-[0-9]+")
_ENTRY: Final = re.compile(r"libexec|master(-[0-9]+)?|zookeeper-[0-9]+|agent-[0-9]+")
_LOCK: Final = threading.Lock()  # held while the record is read, changed and written
_MNT_DETACH: Final = 2  # umount2(2)


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, identified by its id and start time, as the id may be reused."""

    pid: int
    start_ticks: int  # since boot: field 22 of /proc/PID/stat, proc(5)

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the identity of the living process `pid`; None if no such process lives, or it is a zombie."""
        fields = _stat(pid)
        return cls(pid, int(fields[19])) if fields and fields[0] != "Z" else None

    @property
    def alive(self) -> bool:
        """Whether this very process is still running."""
        return Identity.of(self.pid) == self


@dataclass(slots=True)
class Record:
    """Owner of a cluster, and everything that the cluster created or is about to create."""

    directory: Path
    owner: Identity
    made_directory: bool
    processes: dict[str, Identity] = field(default_factory=dict)
    cgroup_roots: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)  # files and directories in `directory`
    networks: list[str] = field(default_factory=list)  # names of bridges

    def save(self) -> None:
        """Write the record atomically."""
        content = {k: v for k, v in asdict(self).items() if k != "directory"}
        part = self.directory / f"{RECORD}.part"
        part.write_text(json.dumps({"version": 1, **content}, indent=1) + "\n")
        part.rename(self.directory / RECORD)

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """Read the record in a directory; None without a record.

        Raises:
            Damaged: The file was not written by a cluster of this version; nothing is removed by it.
        """
        path = directory / RECORD
        try:
            content = json.loads(path.read_text())
            version = content.pop("version")
            owner = Identity(**content.pop("owner"))
            processes = {name: Identity(**value) for name, value in content.pop("processes").items()}
            record = cls(directory, owner, processes=processes, **content)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(path) from error
        names = (_CGROUP_ROOT, record.cgroup_roots), (_ENTRY, record.entries), (network.NAME, record.networks)
        if version != 1 or not all(pattern.fullmatch(n) for pattern, used in names for n in used):
            raise _damaged(path)
        return record


def own(directory: Path) -> Record:
    """Return the record of this process' cluster.

    Raises:
        Conflict: This process has no cluster in the directory.
    """
    record = Record.load(directory)
    if record is None or record.owner != Identity.of(os.getpid()):
        raise Conflict(f"no cluster of this process is started in {directory}", remedy="start it first")
    return record


@contextlib.contextmanager
def editing(directory: Path) -> Iterator[Record]:
    """Yield the record of this process' cluster for changes; it is saved at the end. Raises what `own` raises."""
    with _LOCK:
        record = own(directory)
        yield record
        record.save()


def _damaged(path: Path) -> Damaged:
    return Damaged(
        f"{path} is not the record of a cluster of this version",
        remedy=f"end what runs under {path.parent}, then remove it: rm -r {path.parent}",
    )


def cgroup_root(directory: Path, number: int) -> str:
    """Return the name of an agent's top cgroup, which is the same in each hierarchy."""
    return f"{cgroup_prefix(directory)}-{number}"


def cgroup_prefix(directory: Path) -> str:
    """Return the prefix of the names of a cluster's top cgroups."""
    return f"mesos_gpu-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:10]}"


def claim(directory: Path, entries: list[str]) -> None:
    """Clean up a directory and record this process as its owner. `entries`: names that will be created in it.

    Raises:
        Conflict: A living process has a cluster there, or the cluster's files would overwrite others.
        Damaged: The record in it cannot be read.
    """
    clean_up(directory)
    foreign = sorted(p.name for p in directory.glob("*") if _ENTRY.fullmatch(p.name))
    if foreign:
        raise Conflict(
            f"{directory} holds {', '.join(foreign)}, which were not created by a cluster of this program",
            remedy="choose another directory, or remove these",
        )
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    if is_new:
        directory.chmod(0o755)  # whatever the umask: tasks of other users need access below it
    owner = Identity.of(os.getpid())
    assert owner is not None
    Record(directory, owner, is_new, entries=entries).save()


def clean_up(directory: Path) -> None:
    """Remove what a cluster left in this directory when its owner died; harmless if there is nothing.

    Raises:
        Conflict: The owner is alive; or something could not be removed, which the message names.
        Damaged: The record cannot be read.
    """
    directory = Path(os.path.realpath(directory))
    record = Record.load(directory)
    if record is None:
        return
    if record.owner.alive:
        raise Conflict(
            f"process {record.owner.pid} has a cluster running in {directory}",
            remedy="stop that one first, or choose another directory",
        )
    remove(record)


def remove(record: Record, *, timeout_s: float = 20.0) -> None:
    """End and remove everything in the record, the record itself last.

    Raises:
        Conflict: Something could not be removed in time.
        Unavailable: A network could not be removed.
    """
    deadline = time.monotonic() + timeout_s
    while left := [*_kill(processes(record)), *_remove_cgroups(record.cgroup_roots)]:
        if time.monotonic() > deadline:
            raise Conflict(
                f"left over from the cluster in {record.directory}: {'; '.join(left)}",
                remedy="end these by hand, then try again",
            )
        time.sleep(0.01)
    unmount(record.directory)
    for name in record.networks:
        network.remove(name)
    for name in record.entries:
        path = record.directory / name
        if path.exists():
            shutil.rmtree(path)
    (record.directory / RECORD).unlink()
    if record.made_directory:
        with contextlib.suppress(OSError):  # files that others put there are theirs to remove
            record.directory.rmdir()


def processes(record: Record) -> set[int]:
    """Return the ids of all living processes of the cluster.

    These are the recorded ones, those marked by their environment, and those that share a session with them or descend
    from them; never this process, its ancestors, or others of their sessions.
    """
    stats = dict(_all_stats())
    own = set(_ancestors(os.getpid(), stats))
    # A terminal's session is shared with other programs, so it does not make a process part of the cluster.
    shared_sessions = {"0", str(os.getsid(0)), *(stats[pid][3] for pid in own)}
    noted = {process.pid for process in record.processes.values() if process.alive}
    members = noted | {pid for pid in stats.keys() - own if _is_marked(pid, record.directory)}
    while True:
        sessions = {stats[pid][3] for pid in members if pid in stats} - shared_sessions
        kin = {pid for pid, stat in stats.items() if int(stat[1]) in members or stat[3] in sessions} - own
        if kin <= members:
            return members
        members |= kin


def note_processes(directory: Path) -> None:
    """Record every process of the cluster, because processes whose parents end first could not be found later."""
    with editing(directory) as record:
        record.processes |= {
            str(pid): identity for pid in processes(record) if (identity := Identity.of(pid))
        }


def _stat(pid: int) -> list[str]:
    """Return fields 3 and following of /proc/PID/stat: state, ppid, pgrp, session, …; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(int(name))) and stat[0] != "Z":
            yield int(name), stat


def _ancestors(pid: int, stats: dict[int, list[str]]) -> Iterator[int]:
    while pid in stats:
        yield pid
        pid = int(stats[pid][1])


def _is_marked(pid: int, directory: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # the process is gone, or belongs to another user and so not to this cluster
        return False
    prefix = os.fsencode(f"{directory}/")
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0"))
    return any(
        key.decode("latin-1") in _MARKS and (value + b"/").startswith(prefix) for key, _, value in pairs
    )


def _kill(pids: Iterable[int]) -> list[str]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"process {pid}" for pid in pids]


def hierarchies(kind: Literal["cgroup", "cgroup2"] = "cgroup") -> list[Path]:
    """Return the mount points of the cgroup hierarchies of version 1, or of the one of version 2."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(words[4]) for words in lines if words[words.index("-") + 1] == kind]


def cgroups(roots: Iterable[str]) -> list[Path]:
    """Return all cgroups below these roots, children first."""
    tops = [top / root for top in (*hierarchies(), *hierarchies("cgroup2")) for root in roots]
    return [Path(where) for top in tops for where, _, _ in os.walk(top, topdown=False)]


def _remove_cgroups(roots: Iterable[str]) -> list[str]:
    left = []
    for cgroup in cgroups(roots):
        with contextlib.suppress(OSError):  # the cgroup is gone, or in a hierarchy without freezer
            (cgroup / "freezer.state").write_text("THAWED")  # a frozen process cannot die
        with contextlib.suppress(OSError):
            _kill([int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()])
        try:
            cgroup.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(f"cgroup {cgroup} ({error.strerror})")
    return left


def mounts(directory: Path, of: int | Literal["self"] = "self") -> list[str]:
    """Return the mount points at and below a directory as process `of` sees them, the oldest first."""
    lines = Path(f"/proc/{of}/mountinfo").read_text().splitlines()
    # proc(5): blanks and backslashes in paths are octal escapes
    points = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split()[4]) for line in lines]
    return [point for point in points if f"{point}/".startswith(f"{directory}/")]


def unmount(directory: Path) -> None:
    """Unmount everything below a directory: the isolator filesystem/linux makes work_dir a shared mount.

    Raises:
        Conflict: A mount cannot be removed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for point in reversed(mounts(directory)):
        if libc.umount2(os.fsencode(point), _MNT_DETACH):
            why = os.strerror(ctypes.get_errno())
            raise Conflict(f"{point} cannot be unmounted: {why}", remedy=f"umount -l {point}")
