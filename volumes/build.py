"""Build of driver volumes: each beside the existing builds, and put in place in one step."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mesos_gpu.errors import Conflict, Unavailable
from volumes.digest import sha256_of_all
from volumes.discover import discover
from volumes.keys import RECORD, key_of
from volumes.manifest import plan as plan_of
from volumes.model import Entry, Excluded, Plan
from volumes.places import Given
from volumes.roots import Root, owned_by_root
from volumes.shim import Shim, with_shim
from volumes.store import BUILDING, FORMAT, Content, Store, Volume, directories, explained, verify
from volumes.version import driver_version

FICLONE: Final = 0x40049409  # ioctl_ficlone(2): share the blocks of another file
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_CLONE: Final = frozenset(
    {errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
)


@dataclass(frozen=True, slots=True)
class Built:
    """A driver volume that is in place.

    Attributes:
        volume: The volume, as its record describes it.
        new: Whether this call made it.
        took_s: Time of the build in seconds, without the wait for other builders.
        warnings: Files of the driver that are left out and that tasks may miss.
    """

    volume: Volume
    new: bool
    took_s: float
    warnings: tuple[Excluded, ...] = ()

    @property
    def path(self) -> Path:
        """Return the directory of the build."""
        return self.volume.path

    @property
    def how(self) -> Mapping[str, int]:
        """Return the number of files by the way in which they came, as of `Content.how`."""
        return Counter(file.how for file in self.volume.files)


def make(
    store: Path,
    root: Path = Path("/"),
    version: str | None = None,
    *,
    nvml: str | None = None,
    given: Given | None = None,
    held: Callable[[], Collection[str]] | None = None,
    anew: bool = False,
    shim: Shim | None = None,
) -> Built:
    """Find the driver below `root`, and build its volume in `store` unless it is there already.

    Args:
        store: Directory of driver volumes.
        root: Root of the host.
        version: Version of the driver; None for the running one.
        nvml: Version that NVML reports, as for `volumes.version.driver_version`.
        given: Directories that an operator names; None to search the host.
        held, anew: See `build`.
        shim: Libraries of this project, for the variant that has them in front of the driver's; None for the
            plain volume.

    Raises:
        NotFound, Conflict: See `volumes.discover.discover`, `volumes.version.driver_version` and
            `volumes.shim.with_shim`.
        Unavailable: See `build`.
    """
    files = discover(root, given)
    plan = plan_of(files, driver_version(root, files, version, nvml))
    if shim is not None:
        plan = with_shim(plan, shim)
    return build(store, root, plan, held=held, anew=anew)


def build(
    store: Path,
    root: Path,
    plan: Plan,
    *,
    held: Callable[[], Collection[str]] | None = None,
    simulated: bool = False,
    anew: bool = False,
) -> Built:
    """Build a volume by a plan, unless it is there already.

    Args:
        store: Directory of driver volumes.
        root: Root of the host that has the plan's sources.
        plan: Files and links of the volume.
        held: Function that returns the names of builds that tasks use; if None, builds that a killed
            collector moved away stay.
        simulated: Whether to record the driver as simulated.
        anew: Whether to build even if the existing volume looks as planned.

    Raises:
        Unavailable: The directory cannot hold volumes: it is full, read-only, mounted noexec, or belongs to
            another user.
        Conflict: A file of the host changed meanwhile.
    """
    target = Store(store)
    with target.locked():
        began = time.monotonic()
        _check_place(store)
        _check_name(target.path_of(plan.key))
        with explained(store):
            target.clear_litter(held)
            before = None if anew else _as_planned(target, root, plan)
            if before is not None:
                return Built(before, False, time.monotonic() - began, plan.warnings)
            volume = _switch(target, _assemble(target, root, plan, simulated))
        return Built(volume, True, time.monotonic() - began, plan.warnings)


def _check_place(store: Path) -> None:
    """Check that the file system is writable and not mounted noexec, where libraries could not be mapped nor
    programs run.
    """
    flags = os.statvfs(store).f_flag
    elsewhere = "choose another directory by --store or MESOS_GPU_VOLUMES"
    if flags & os.ST_RDONLY:
        raise Unavailable(f"{store} is on a read-only file system", remedy=elsewhere)
    if flags & os.ST_NOEXEC:
        raise Unavailable(
            f"{store} is on a file system mounted noexec: no library there can be loaded",
            remedy=f"remount it with exec, or {elsewhere}",
        )


def _check_name(path: Path) -> None:
    if os.path.lexists(path) and not path.is_symlink():
        raise Conflict(
            f"{path} is a directory that this program did not make",
            remedy="remove it when no task uses it, and run this again",
        )


def _as_planned(target: Store, root: Path, plan: Plan) -> Volume | None:
    """Return the current volume if it agrees with the plan and none of its files looks changed; else None."""
    current = target.current(plan.key)
    if current is None:
        return None
    volume = target.read(current)
    planned = {entry.target: (entry.source, entry.group.value) for entry in plan.entries}
    same = planned == {file.target: (file.source, file.group) for file in volume.files}
    if volume.problem or not same or dict(volume.links) != {link.target: link.to for link in plan.links}:
        return None
    sources = {entry.target: _source(root, entry) for entry in plan.entries}
    texts = {entry.target: entry.text for entry in plan.entries}
    for file in volume.files:
        try:
            source, there = os.lstat(sources[file.target]), os.lstat(volume.path / file.target)
        except OSError:
            return None
        text = texts[file.target]
        size_bytes = source.st_size if text is None else len(text.encode())
        if (size_bytes, source.st_mtime_ns) != (file.size_bytes, file.source_mtime_ns):
            return None
        if (there.st_size, there.st_mtime_ns) != (file.size_bytes, file.source_mtime_ns):
            return None
    if any(not os.path.islink(volume.path / link) for link in volume.links):
        return None
    return volume


def _source(root: Path, entry: Entry) -> Path:
    return Path(entry.source) if entry.own else Root(root).outside(entry.source)


def _assemble(target: Store, root: Path, plan: Plan, simulated: bool) -> Path:
    """Assemble a build beside the others, under a name that the next run removes."""
    part = target.path / f"{BUILDING}-{plan.key}"
    targets = [*(entry.target for entry in plan.entries), *(link.target for link in plan.links)]
    for directory in ("", *directories(plan.variant, targets)):
        (part / directory).mkdir(mode=0o755)
        (part / directory).chmod(0o755)  # regardless of the umask
    placed = [
        (entry, *_place(_source(root, entry), part / entry.target, entry.text)) for entry in plan.entries
    ]
    for link in plan.links:
        os.symlink(link.to, part / link.target)
    digests = sha256_of_all(part / entry.target for entry in plan.entries)
    files = [
        Content(
            entry.target,
            entry.source,
            entry.group.value,
            (part / entry.target).stat().st_size,
            digests[part / entry.target],
            status.st_mtime_ns,
            how,
        )
        for entry, status, how in placed
    ]
    _write_record(part, root, plan, files, simulated)
    return part


def _place(source: Path, target: Path, text: str | None) -> tuple[os.stat_result, str]:
    """Put a file of the host, or its text, into a build, without a copy if possible.

    Returns:
        The status of the file on the host, and a value for `Content.how`.
    """
    status = os.lstat(source)
    if not stat.S_ISREG(status.st_mode):
        raise Conflict(f"{source} is no longer a regular file", remedy="run it again")
    if text is not None:
        with open(target, "x") as new:
            new.write(text)
            new.flush()
            _finish(new.fileno(), status)
        return status, "rewritten"
    if (
        owned_by_root(status) and not status.st_mode & 0o022
    ):  # a user who can write the file could change it through the hard link too
        try:
            os.link(source, target, follow_symlinks=False)
            return status, "hard link"
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
    with open(source, "rb") as old, open(target, "xb") as new:
        how = "reflink" if _cloned(old.fileno(), new.fileno()) else "copy"
        if how == "copy":
            shutil.copyfileobj(old, new, 1 << 20)
        new.flush()
        _finish(new.fileno(), status)
    return status, how


def _finish(fd: int, status: os.stat_result) -> None:
    """Give a new file the mode and times of its source, and write it to disk."""
    os.fchmod(fd, 0o755 if status.st_mode & 0o111 else 0o644)
    os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.fsync(fd)


def _cloned(old: int, new: int) -> bool:
    try:
        fcntl.ioctl(new, FICLONE, old)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True


def _write_record(part: Path, root: Path, plan: Plan, files: list[Content], simulated: bool) -> None:
    links = {link.target: link.to for link in plan.links}
    what = [[file.target, file.sha256] for file in files] + [[name, to] for name, to in links.items()]
    digest = hashlib.sha256(json.dumps([plan.key, what]).encode()).hexdigest()
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": plan.version,
        "variant": plan.variant,
        "digest": f"sha256:{digest}",
        "root": str(root),
        "built_at": time.time(),
        "simulated": simulated,
        "links": links,
        "files": [asdict(file) for file in files],
    }
    with open(part / RECORD, "x") as file:
        json.dump(body, file, indent=1)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())


def _switch(target: Store, part: Path) -> Volume:
    """Give a build its final name, and let `nvidia_<version>` lead to it: launches get it from here on."""
    body = json.loads((part / RECORD).read_text())
    key, digest = key_of(body["version"], body["variant"]), body["digest"].removeprefix("sha256:")
    build = _name(target, f"{key}-{digest[:12]}")
    if build.exists():
        shutil.rmtree(part)
    else:
        os.rename(part, build)
        _sync(target.builds)
    link = target.path / f"{BUILDING}-link"
    os.symlink(f"builds/{build.name}", link)
    os.replace(link, target.path_of(key))
    _sync(target.path)
    return target.get(key)


def _name(target: Store, name: str) -> Path:
    """Return the path for a build of that content: `name`, or the next numbered name if the build there is
    damaged.
    """
    for number in range(1, 1000):
        path = target.builds / (name if number == 1 else f"{name}.{number}")
        if not path.exists() or not verify(target.read(path)):
            return path
    raise Conflict(f"{target.builds} has 999 damaged builds {name}", remedy="mesos-gpu volume gc")


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
