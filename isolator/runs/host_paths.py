"""Paths of this host that a task may mount: only those that the host's operator allows.

MESOS_GPU_VOLUME_ROOTS lists, separated by commas, directories from which tasks may mount; `:ro` after one
means read-only. Without it tasks may mount only from their own sandbox. Symbolic links are resolved before
anything is decided.
"""

import ctypes
import os
import pwd
import re
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isolator.gpus.ledger import DEFAULT_DIRECTORY
from isolator.host.not_started import NotStarted, is_trial
from isolator.host.paths import FORBIDDEN, is_within, overlap
from isolator.persistent.root import SETTING, PersistentRoot
from isolator.runs.run import sandbox_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.jobs.mount import Mount, persistent_of
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH
from volumes.keys import default_path

ROOTS: Final = "MESOS_GPU_VOLUME_ROOTS"
#: Directories that no mount may cover: programs there run as root in a task's view, at its start and for its
#: health checks, and the task's own programs rely on them.
_SYSTEM: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
                  "/usr", sys.base_prefix, str(Path(__file__).parents[2]))  # fmt: skip
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
Identity = tuple[int, int]  # device and inode
_ASK_S: Final = 10.0  # time limit for file servers that do not answer
#: Number of setgroups(2) by machine: asm/unistd_64.h of x86, asm-generic/unistd.h, and those of the others.
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "ppc64": 81, "s390x": 206}


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that the operator allows for mounts."""

    path: str  # symbolic links are resolved
    read_only: bool


@dataclass(frozen=True, slots=True)
class Granted(Mount):
    """A mount that a task gets.

    Attributes:
        identity: Device and inode of the file that the task's user reaches by the path.
    """

    identity: Identity = (0, 0)


def granted(mounts: Sequence[Mount], own: Mapping[str, str], user: pwd.struct_passwd) -> tuple[Granted, ...]:
    """Return the mounts of a job with their symbolic links resolved, after checking each.

    A path may lead elsewhere when it is mounted, as directories on it can be exchanged. So what is mounted
    must be compared with `identity`.

    Args:
        mounts: Mounts as the job has them.
        own: Environment of the executor.
        user: User of the task, who gets no path that this user could not reach without a mount.

    Raises:
        NotStarted: A path does not exist, or may not be mounted.
        BadConfiguration: The operator's list is invalid.
    """
    roots, never, sandbox = tuple(roots_of(own)), tuple(never_given(own)), os.path.realpath(sandbox_of(own))
    volumes = {os.path.normpath(volume_mount.target): volume_mount for volume_mount in persistent_of(mounts)}
    mounts_given = []
    for mount in mounts:
        if (volume := mount if mount.volume_mib else volumes.get(os.path.normpath(mount.source))) is not None:
            mounts_given.append(_of_volume(mount, volume, own, user))
            continue
        real = os.path.realpath(os.path.join(sandbox, mount.source))
        if mount.source.startswith("/"):
            _check_allowed(mount, real, roots, never, own)
        elif not is_within(real, sandbox):
            raise NotStarted(f"{mount.source} leads out of the sandbox; use a path in it")
        identity = _identity(mount, real, user)
        mounts_given.append(Granted(real, mount.target, mount.read_only, identity=identity))
    return tuple(mounts_given)


def _of_volume(mount: Mount, volume: Mount, own: Mapping[str, str], user: pwd.struct_passwd) -> Granted:
    """Return the mount of a persistent volume, or of a path of the sandbox where the task has one."""
    if own.get("MESOS_GPU_POOL_UID"):
        why = "a persistent volume belongs to one user, and this task gets another uid at each launch; name a user"
        raise NotStarted(why)
    root = PersistentRoot.of(own)
    if root is None:
        raise NotStarted(f"this host keeps no persistent volumes: set {SETTING} on its agent")
    with root:
        identity = root.make(volume.source, user, is_made=volume.is_made)
        return Granted(root.path_of(volume.source), mount.target, mount.read_only, identity=identity)


def roots_of(own: Mapping[str, str]) -> Iterator[Root]:
    """Yield the directories in the operator's list.

    Raises:
        BadConfiguration: An entry is not an absolute path.
    """
    for entry in filter(None, map(str.strip, own.get(ROOTS, "").split(","))):
        path = entry.removesuffix(":ro")
        if not path.startswith("/") or ":" in path:
            raise BadConfiguration(
                f"{ROOTS} names {entry!r}",
                remedy="list absolute paths, separated by commas, each with :ro or without",
            )
        yield Root(os.path.realpath(path), entry.endswith(":ro"))


def never_given(own: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that no list can allow, nor anything below them, nor a directory that contains them."""
    yield from map(os.path.realpath, FORBIDDEN)
    yield os.path.realpath(own.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)
    yield os.path.realpath(default_path(own))
    if volumes := own.get(SETTING):
        yield os.path.realpath(volumes)
    if socket := own.get("MESOS_GPU_DOCKER_SOCKET"):
        yield os.path.realpath(socket)
    # The agent's work_dir, with the sandboxes of all tasks: <work_dir>/slaves/<agent>/frameworks/…
    # (slave/paths.hpp).
    yield os.path.realpath(sandbox_of(own)).partition("/slaves/")[0]


def _check_allowed(
    mount: Mount, real: str, roots: Sequence[Root], never: Sequence[str], own: Mapping[str, str]
) -> None:
    """Check that the operator's list allows a mount."""
    allowed = [root for root in roots if is_within(real, root.path)]
    if not allowed or any(overlap(real, path) for path in never):
        remedy = _remedy(roots, mount.source, trial=is_trial(own))
        raise NotStarted(f"this host does not give {mount.source} to tasks; {remedy}")
    if not mount.read_only and all(root.read_only for root in allowed):
        raise NotStarted(f"this host gives {mount.source} for reading only; ask for it read-only")


def _identity(mount: Mount, real: str, user: pwd.struct_passwd) -> Identity:
    """Check the file of a mount, and return its identity."""
    try:
        mode = os.lstat(real).st_mode
    except OSError as error:
        raise NotStarted(f"this host has no {mount.source}: {error.strerror}") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise NotStarted(
            f"{mount.source} is neither a directory nor a regular file, so tasks cannot mount it"
        )
    check_alone(real)
    if (identity := _reached(user, real)) is None:
        raise NotStarted(f"the user {user.pw_name} may not reach {mount.source} on this host")
    return identity


def _remedy(roots: Sequence[Root], source: str, *, trial: bool) -> str:
    """Return how a path can be allowed.

    Args:
        trial: Whether the cluster is one of `mesos-gpu up`.
    """
    if trial:
        given = f"use a path in {', '.join(root.path for root in roots)}, or " if roots else ""
        return f"{given}start the cluster again with: mesos-gpu up --volume-root {source}"
    if not roots:
        return f"no path is allowed: its operator can set {ROOTS} on its agent"
    return f"it allows paths in {', '.join(root.path for root in roots)} ({ROOTS})"


def check_alone(path: str) -> None:
    """Check that a path contains no mount point: a mount would omit that file system, or not make it
    read-only.

    Raises:
        NotStarted: It contains one.
    """
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4])  # proc(5)
        if point != path and is_within(point, path):
            raise NotStarted(f"{path} contains another file system, at {point}; mount that separately")


def _reached(user: pwd.struct_passwd, path: str) -> Identity | None:
    """Return the identity of the file that the user reaches by a path; None if it reaches none.

    Checked as the user, because a mount would lead past directories that the user may not search, and only
    the kernel knows their ACLs. A thread takes the user's file rights only: a process of that user could be
    attached to, but ptrace(2) ignores fsuid.
    """
    answers: list[Identity | None] = []
    asking = threading.Thread(target=lambda: answers.append(_seen_as(user, path)), daemon=True)
    asking.start()
    asking.join(_ASK_S)
    return answers[0] if answers else None


def _seen_as(user: pwd.struct_passwd, path: str) -> Identity | None:
    """Look at a path as the user, in a thread that keeps the user's rights.

    The raw system call changes only this thread (credentials(7)); the C library's setgroups would change all.
    """
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    if os.geteuid() == 0:
        number = _SETGROUPS.get(os.uname().machine)
        libc = ctypes.CDLL(None, use_errno=True)
        if number is None or libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups)):
            return None
        libc.setfsgid(user.pw_gid)
        libc.setfsuid(user.pw_uid)
        if libc.setfsuid(-1) != user.pw_uid:  # returns the current value, see setfsuid(2)
            return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# --- check of what was mounted


def see_given(pid: int, given: Sequence[Identity]) -> None:
    """Check that a container has the mounts that it is to have.

    Whatever mounts them goes by names, as root, and follows links that were put there since: they could lead
    it past directories that are closed to the task's user.

    Args:
        pid: Pid of a process in the container, before the task's command.
        given: Identity of each mounted path; it may occur twice.

    Raises:
        NotStarted: The container has something else.
        OSError: The container's mounts cannot be read.
    """
    points = {
        _OCTAL.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4])
        for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines()
    }
    there: Counter[Identity] = Counter()
    for point in points:
        with suppress(OSError):  # covered by another mount
            status = os.lstat(f"/proc/{pid}/root{point}")
            there[status.st_dev, status.st_ino] += 1
    if Counter(given) - there:
        raise NotStarted(
            "a path of the host was exchanged for another while it was mounted; the task is not started"
        )


# --- targets of mounts


def in_host(mounts: Sequence[Mount], sandbox: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the mounts (source, target, read-only) for a task on the host's own file system.

    Raises:
        NotStarted: A target does not exist, or programs of the host would see it in place of their own files.
    """
    return tuple((mount.source, _in_host(mount, sandbox), mount.read_only) for mount in mounts)


def _in_host(mount: Mount, sandbox: str) -> str:
    target = mount.target
    if not target.startswith("/"):
        return _relative(target)
    real = os.path.realpath(target)
    if any(overlap(real, path) for path in (*map(os.path.realpath, _SYSTEM), os.path.realpath(sandbox))):
        raise NotStarted(
            f"a task without an image uses the host's {target}, which no volume may cover; {_use_sandbox(mount)}"
        )
    if not os.path.exists(real):
        raise NotStarted(
            f"{target} does not exist on this host, and a task without an image mounts only where a path exists; "
            f"{_use_sandbox(mount)}"
        )
    return real


def _use_sandbox(mount: Mount) -> str:
    """Return how to mount the same source in the sandbox."""
    name = os.path.basename(mount.target.rstrip("/")) or "data"
    return f"write --volume {mount.source}:{name}{':ro' if mount.read_only else ''}, which is in the sandbox"


def in_image(mounts: Sequence[Mount], sandbox: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the mounts (source, target, read-only) for a task with an image.

    Args:
        sandbox: Path of the sandbox in the image.

    Raises:
        NotStarted: A target would hide what the task is given.
    """
    return tuple((mount.source, _in_image(mount.target, sandbox), mount.read_only) for mount in mounts)


def in_nested(mounts: Sequence[Mount], sandbox: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the mounts (source, target, read-only) for an image that the agent runs; targets in the sandbox
    stay relative.

    The agent makes mount points as root and follows the image's symbolic links, even out of the image
    (volume/host_path.cpp of Mesos 1.11). mkdir(2) does not follow a link at the end of a path, so a directory
    right below / is safe.

    Raises:
        NotStarted: A target would hide what the task is given, or is not safe.
    """
    return tuple((mount.source, _in_nested(mount, sandbox), mount.read_only) for mount in mounts)


def _in_image(target: str, sandbox: str) -> str:
    if not target.startswith("/"):
        return f"{sandbox}/{_relative(target)}"
    path = os.path.normpath("/" + target.lstrip("/"))
    if overlap(path, VOLUME_PATH) or is_within(sandbox, path):
        raise NotStarted(f"{target} of an image would hide what the task is given; use another path")
    if any(is_within(path, kept) for kept in ("/dev", "/proc", "/sys")):
        raise NotStarted(f"nothing can be mounted at {target} of an image; use another path")
    return path


def _in_nested(mount: Mount, sandbox: str) -> str:
    path = _in_image(mount.target, sandbox)
    if not mount.target.startswith("/"):
        return _relative(mount.target)
    if path.count("/") > 1 or not os.path.isdir(mount.source):
        raise NotStarted(
            f"Mesos cannot mount safely at {mount.target} of an image; use a path in the sandbox, such as data, or "
            "for a directory one right below /, such as /data; or another engine (--container-engine own or docker)"
        )
    return path


def _relative(target: str) -> str:
    path = os.path.normpath(target)
    if path == "." or path.split("/")[0] == "..":
        raise NotStarted(f"{target} leads out of the sandbox; use a path in it")
    return path
