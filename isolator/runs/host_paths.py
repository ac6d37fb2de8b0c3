"""Which paths of this host a task is given: none but what the host's operator allows.

MESOS_GPU_VOLUME_ROOTS lists, by commas, directories of which tasks may ask for what is in them; `:ro` after one: for
reading only. Without it nothing is given but what is in a task's own sandbox. Symbolic links are followed before
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
#: What runs as root in a task's view, when it starts and for its health checks, and what its own programs rely on.
_SYSTEM: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
                  "/usr", sys.base_prefix, str(Path(__file__).parents[2]))  # fmt: skip
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
Identity = tuple[int, int]  # device and inode
_ASK_S: Final = 10.0  # a file server that does not answer
#: setgroups(2) by machine: asm/unistd_64.h of x86, asm-generic/unistd.h, and those of the others.
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "ppc64": 81, "s390x": 206}


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that an operator allows."""

    path: str  # without symbolic links
    read_only: bool


@dataclass(frozen=True, slots=True)
class Granted(Mount):
    """A path that a task is given. `identity`: of the file that its user reaches by that path."""

    identity: Identity = (0, 0)


def granted(mounts: Sequence[Mount], own: Mapping[str, str], user: pwd.struct_passwd) -> tuple[Granted, ...]:
    """What is asked for, with sources that have no symbolic link.

    A path may lead elsewhere when it is mounted: directories on it can be exchanged. So what is mounted must be
    compared with `identity`.

    Args:
        mounts: As the job has them.
        own: The executor's environment.
        user: Whom it runs as; it gets no path that this user could not reach without a mount.

    Raises:
        NotStarted: One is not there, or not to be given.
        BadConfiguration: The operator's list cannot be understood.
    """
    roots, never, sandbox = tuple(roots_of(own)), tuple(never_given(own)), os.path.realpath(sandbox_of(own))
    kept = {os.path.normpath(each.target): each for each in persistent_of(mounts)}
    mounts_given = []
    for mount in mounts:
        if (volume := mount if mount.volume_mib else kept.get(os.path.normpath(mount.source))) is not None:
            mounts_given.append(_of_volume(mount, volume, own, user))
            continue
        real = os.path.realpath(os.path.join(sandbox, mount.source))
        if mount.source.startswith("/"):
            _see_allowed(mount, real, roots, never, own)
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
    """The operator's list.

    Raises:
        BadConfiguration: It names something relative.
    """
    for entry in filter(None, map(str.strip, own.get(ROOTS, "").split(","))):
        path = entry.removesuffix(":ro")
        if not path.startswith("/") or ":" in path:
            raise BadConfiguration(
                f"{ROOTS} names {entry!r}", remedy="list absolute paths by commas, each with :ro or without"
            )
        yield Root(os.path.realpath(path), entry.endswith(":ro"))


def never_given(own: Mapping[str, str]) -> Iterator[str]:
    """What no list can allow; neither is it given what is in them, nor a directory that they are in."""
    yield from map(os.path.realpath, FORBIDDEN)
    yield os.path.realpath(own.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)
    yield os.path.realpath(default_path(own))
    if volumes := own.get(SETTING):
        yield os.path.realpath(volumes)
    if socket := own.get("MESOS_GPU_DOCKER_SOCKET"):
        yield os.path.realpath(socket)
    # The agent's own: <work_dir>/slaves/<agent>/frameworks/… (slave/paths.hpp), with everybody's sandboxes.
    yield os.path.realpath(sandbox_of(own)).partition("/slaves/")[0]


def _see_allowed(
    mount: Mount, real: str, roots: Sequence[Root], never: Sequence[str], own: Mapping[str, str]
) -> None:
    allowed = [root for root in roots if is_within(real, root.path)]
    if not allowed or any(overlap(real, path) for path in never):
        remedy = _remedy(roots, mount.source, trial=is_trial(own))
        raise NotStarted(f"this host does not give {mount.source} to tasks; {remedy}")
    if not mount.read_only and all(root.read_only for root in allowed):
        raise NotStarted(f"this host gives {mount.source} for reading only; ask for it read-only")


def _identity(mount: Mount, real: str, user: pwd.struct_passwd) -> Identity:
    try:
        mode = os.lstat(real).st_mode
    except OSError as error:
        raise NotStarted(f"this host has no {mount.source}: {error.strerror}") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise NotStarted(f"{mount.source} is neither a directory nor a file, and is not given to tasks")
    check_alone(real)
    if (identity := _reached(user, real)) is None:
        raise NotStarted(f"the user {user.pw_name} may not reach {mount.source} on this host")
    return identity


def _remedy(roots: Sequence[Root], source: str, *, trial: bool) -> str:
    """Say how a path may be given; `trial`: by `mesos-gpu up`."""
    if trial:
        given = f"name a path in {', '.join(root.path for root in roots)}, or " if roots else ""
        return f"{given}start the cluster again with: mesos-gpu up --volume-root {source}"
    if not roots:
        return f"its operator allows none: set {ROOTS} on its agent"
    return f"it gives what is in {', '.join(root.path for root in roots)} ({ROOTS})"


def check_alone(path: str) -> None:
    """See that no other file system is in it: a mount would leave that out, or not make it read-only.

    Raises:
        NotStarted: One is.
    """
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4])  # proc(5)
        if point != path and is_within(point, path):
            raise NotStarted(f"{path} has another file system in it, at {point}; ask for that by itself")


def _reached(user: pwd.struct_passwd, path: str) -> Identity | None:
    """Return which file the user reaches by a path; None if it reaches none.

    A mount would lead past directories that the user may not search; the kernel knows also their ACLs.
    Asked by a thread that has the user's rights on files, and is nobody else: no process of that user is there to
    attach to (fsuid is not asked by ptrace(2)).
    """
    answers: list[Identity | None] = []
    asking = threading.Thread(target=lambda: answers.append(_seen_as(user, path)), daemon=True)
    asking.start()
    asking.join(_ASK_S)
    return answers[0] if answers else None


def _seen_as(user: pwd.struct_passwd, path: str) -> Identity | None:
    """Look as the user. Only this thread changes, and stays changed: each has credentials of its own
    (credentials(7)); the C library's setgroups would change all."""
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    if os.geteuid() == 0:
        number = _SETGROUPS.get(os.uname().machine)
        libc = ctypes.CDLL(None, use_errno=True)
        if number is None or libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups)):
            return None
        libc.setfsgid(user.pw_gid)
        libc.setfsuid(user.pw_uid)
        if libc.setfsuid(-1) != user.pw_uid:  # how to ask for it: setfsuid(2)
            return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# --- whether it is what was decided on


def see_given(pid: int, given: Sequence[Identity]) -> None:
    """See that a container has what it is to have. What mounts it goes by names, as root, and follows links that were
    put there since: they could lead it past directories that are closed to the task's user.

    Args:
        pid: Of a process in it; nothing of its task has run yet.
        given: Of each path; it may come twice.

    Raises:
        NotStarted: It has something else.
        OSError: It cannot be seen.
    """
    points = {
        _OCTAL.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4])
        for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines()
    }
    there: Counter[Identity] = Counter()
    for point in points:
        with suppress(OSError):  # covered by another
            status = os.lstat(f"/proc/{pid}/root{point}")
            there[status.st_dev, status.st_ino] += 1
    if Counter(given) - there:
        raise NotStarted("a path of the host was exchanged for another while it was mounted; it is not given")


# --- where a task has them


def in_host(mounts: Sequence[Mount], sandbox: str) -> tuple[tuple[str, str, bool], ...]:
    """Mounts for a task on the host's own file system: source, target, whether it is read-only.

    Raises:
        NotStarted: A target is not there, or the host's programs would see it in place of their own.
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
    """Mounts for a task with an image: source, target, whether it is read-only. `sandbox`: where the image has it.

    Raises:
        NotStarted: A target would hide what the task is given.
    """
    return tuple((each.source, _in_image(each.target, sandbox), each.read_only) for each in mounts)


def in_nested(mounts: Sequence[Mount], sandbox: str) -> tuple[tuple[str, str, bool], ...]:
    """Mounts for an image that the agent runs: source, target, whether it is read-only.

    Targets in the sandbox stay relative.
    The agent makes mount points as root and follows the image's symbolic links, out of the image, too
    (volume/host_path.cpp of Mesos 1.11). mkdir(2) follows no last one: a directory right below / is safe.

    Raises:
        NotStarted: A target would hide what the task is given, or is not safe.
    """
    return tuple((each.source, _in_nested(each, sandbox), each.read_only) for each in mounts)


def _in_image(target: str, sandbox: str) -> str:
    if not target.startswith("/"):
        return f"{sandbox}/{_relative(target)}"
    path = os.path.normpath("/" + target.lstrip("/"))
    if overlap(path, VOLUME_PATH) or is_within(sandbox, path):
        raise NotStarted(f"{target} of an image would hide what the task is given; use another path")
    if any(is_within(path, kept) for kept in ("/dev", "/proc", "/sys")):
        raise NotStarted(f"nothing is put at {target} of an image; use another path")
    return path


def _in_nested(mount: Mount, sandbox: str) -> str:
    path = _in_image(mount.target, sandbox)
    if not mount.target.startswith("/"):
        return _relative(mount.target)
    if path.count("/") > 1 or not os.path.isdir(mount.source):
        raise NotStarted(
            f"Mesos puts nothing safely at {mount.target} of an image; use a path in the sandbox, as data, or for a "
            "directory one right below /, as /data; or another engine (--container-engine own or docker)"
        )
    return path


def _relative(target: str) -> str:
    path = os.path.normpath(target)
    if path == "." or path.split("/")[0] == "..":
        raise NotStarted(f"{target} leads out of the sandbox; use a path in it")
    return path
