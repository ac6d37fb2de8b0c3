"""The directory of driver volumes: listing, verification and removal of builds.

`nvidia_<version>` is a symbolic link to a build, `builds/<version>-<digest>`, which never changes: a rebuilt
volume is another build, and the link is switched. So a task that uses a build keeps exactly that build.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mesos_gpu.errors import Damaged, MesosGpuError, NotFound, Unavailable
from volumes.keys import RECORD, REGION, current, key_of, link_of

DIRECTORIES: Final = ("bin", "lib", "lib64")
FORMAT: Final = 1
BUILDING: Final = ".building"
_REMOVED: Final = ".removed-"


@dataclass(frozen=True, slots=True)
class Content:
    """A file of a volume, as it was built.

    Attributes:
        target: Path below the volume, "lib64/libcuda.so.535.261.03".
        source: Path on the host, as seen from the root from which the volume was built.
        group: Name of a `volumes.model.Group`.
        size_bytes: Size of the file in bytes.
        sha256: SHA-256 of the content, hexadecimal.
        source_mtime_ns: Modification time of the source, by which later changes are noticed.
        how: "hard link", "reflink", "copy", or "rewritten" for a text that differs from the source's.
    """

    target: str
    source: str
    group: str
    size_bytes: int
    sha256: str
    source_mtime_ns: int
    how: str


@dataclass(frozen=True, slots=True)
class Volume:
    """A build of a driver volume.

    Attributes:
        path: Directory of the build.
        version: Version of the driver.
        digest: Digest of the build's content, "sha256:…".
        root: Root of the host from which it was built.
        files: Files of the volume; empty if the record cannot be read.
        links: Targets of the symbolic links, by their paths.
        built_at: Time of the build, in seconds since the epoch.
        simulated: Whether the driver is simulated.
        current: Whether `nvidia_<version>` leads to this build.
        problem: Reason why the record cannot be read; "" if it can be.
        variant: Name of the variant; "" for the plain volume of that driver.
    """

    path: Path
    version: str
    digest: str
    root: str
    files: tuple[Content, ...]
    links: Mapping[str, str]
    built_at: float
    simulated: bool = False
    current: bool = False
    problem: str = ""
    variant: str = ""

    @property
    def key(self) -> str:
        """Return the key of the volume in its store."""
        return key_of(self.version, self.variant)

    @property
    def name(self) -> str:
        """Return the name by which the build is leased: "535.261.03-0123456789ab"."""
        return self.path.name

    @property
    def size_bytes(self) -> int:
        """Return the size of all files in bytes, whether or not they share their blocks with the host's."""
        return sum(file.size_bytes for file in self.files)


class Store:
    """All driver volumes of a host."""

    def __init__(self, path: Path) -> None:
        """Name the store's directory, which need not exist yet."""
        self.path = path
        self.builds = path / "builds"

    def path_of(self, key: str) -> Path:
        """Return the link to the current build of a volume, as `volumes.keys.link_of` does."""
        return link_of(self.path, key)

    def current(self, key: str) -> Path | None:
        """Return the build that tasks of a driver get, as `volumes.keys.current` does."""
        return current(self.path, key)

    def get(self, key: str) -> Volume:
        """Return the current volume of a driver version, or of a variant.

        Raises:
            NotFound: No such volume exists.
            Damaged: Its record cannot be read.
        """
        build = self.current(key)
        if build is None:
            there = ", ".join(volume.key for volume in self.volumes() if volume.current) or "none"
            raise NotFound(
                f"there is no driver volume of {key} in {self.path}; volumes there: {there}",
                remedy="build it: mesos-gpu volume build",
            )
        return self._read(build)

    def volumes(self) -> tuple[Volume, ...]:
        """Return all builds, by name; also those whose records cannot be read."""
        if not self.builds.is_dir():
            return ()
        return tuple(self.read(path) for path in sorted(self.builds.iterdir()) if path.is_dir())

    def read(self, build: Path) -> Volume:
        """Return a build; if its record cannot be read, it has a `problem`."""
        try:
            return self._read(build)
        except Damaged as error:
            key = build.name.rpartition("-")[0]
            version, _, variant = key.partition("+")
            current = self.current(key) == build
            return Volume(
                build, version, "", "", (), {}, 0.0, current=current, problem=error.what, variant=variant
            )

    def _read(self, build: Path) -> Volume:
        try:
            body = json.loads((build / RECORD).read_text())
            if body["format"] > FORMAT:
                raise ValueError(f"its format {body['format']} is newer than this program's, {FORMAT}")
            volume = _volume(build, body)
            return replace(volume, current=self.current(volume.key) == build)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"the record of the driver volume {build} cannot be read: {error!r}",
                remedy=f"remove {build} when no task uses it, and build the volume again",
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the exclusive lock of builders and collectors of this directory; the death of its holder
        releases it.

        Raises:
            Unavailable: The directory cannot be made or written.
        """
        with explained(self.path):
            self.builds.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def clear_litter(self, held: Callable[[], Collection[str]] | None = None) -> None:
        """Remove what a killed builder or collector left; the caller holds the lock.

        Args:
            held: Function that returns the names of builds that tasks use; if None, builds that a killed
                collector moved away stay.
        """
        for path in list(self.path.iterdir()):
            if path.name.startswith(BUILDING):
                remove(path)
        for path in list(self.builds.iterdir()):
            if path.name.startswith(_REMOVED) and held is not None:
                self._finish_removal(path, held())

    def collect(
        self, held: Callable[[], Collection[str]], keep: Callable[[Volume], bool]
    ) -> tuple[Volume, ...]:
        """Remove each build that no task uses and that is not to be kept.

        Args:
            held: Function that returns the names of builds that tasks use; it is called again after a build
                has been moved away, as a task may have started to use it meanwhile.
            keep: Function that returns whether to keep a build that no task uses.

        Returns:
            The removed builds.

        Raises:
            MesosGpuError: `held` failed; then nothing more is removed.
            Unavailable: A file cannot be removed.
        """
        removed = []
        with self.locked(), explained(self.path):
            self.clear_litter(held)
            names = set(held())
            for volume in self.volumes():
                if volume.name in names or keep(volume):
                    continue
                if volume.current:
                    self.path_of(volume.key).unlink()
                away = volume.path.with_name(_REMOVED + volume.name)
                volume.path.rename(away)
                if self._finish_removal(away, held()):
                    removed.append(volume)
        return tuple(removed)

    def _finish_removal(self, away: Path, held: Collection[str]) -> bool:
        name = away.name.removeprefix(_REMOVED)
        if name in held:
            away.rename(away.with_name(name))
            return False
        remove(away)
        return True


def _volume(build: Path, body: Mapping[str, Any]) -> Volume:
    return Volume(
        path=build,
        version=str(body["version"]),
        digest=str(body["digest"]),
        root=str(body["root"]),
        files=tuple(Content(**file) for file in body["files"]),
        links=dict(body["links"]),
        built_at=float(body["built_at"]),
        simulated=bool(body.get("simulated", False)),
        variant=str(body.get("variant", "")),
    )


def directories(variant: str, targets: Iterable[str]) -> tuple[str, ...]:
    """Return the directories of a volume with files and links at these targets, each after its parent."""
    above = {str(path) for target in targets for path in PurePosixPath(target).parents}
    return tuple(sorted({*DIRECTORIES, *((REGION,) if variant else ()), *above} - {"."}))


def verify(volume: Volume) -> tuple[str, ...]:
    """Compare a volume with its record, and return the differences in words: missing, changed and added
    files.

    All of its content is read.
    """
    from volumes.digest import sha256_of_all

    if volume.problem:
        return (volume.problem,)
    problems = []
    present = {}
    for file in volume.files:
        path = volume.path / file.target
        try:
            status = path.lstat()
        except OSError:
            problems.append(f"{file.target} is missing")
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_size != file.size_bytes:
            problems.append(f"{file.target} has changed")
        else:
            present[path] = file
    digests = sha256_of_all(present)
    problems += [
        f"{file.target} has changed" for path, file in present.items() if digests[path] != file.sha256
    ]
    for target, to in volume.links.items():
        path = volume.path / target
        if not os.path.lexists(path):
            problems.append(f"{target} is missing")
        elif not path.is_symlink() or os.readlink(path) != to:
            problems.append(f"{target} has changed")
    targets = {*volume.links, *(file.target for file in volume.files)}
    known = {RECORD, *directories(volume.variant, targets), *targets}
    every = (str(path.relative_to(volume.path)) for path in volume.path.rglob("*"))
    problems += [f"{name} was added" for name in every if name not in known]
    return tuple(sorted(problems))


def remove(path: Path) -> None:
    """Remove a directory with all its content, or a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(store: Path) -> Iterator[None]:
    """Turn a refusal of the file system into an error that explains it.

    Raises:
        Unavailable: The file system refused; in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise _explained(store, error) from error


def _explained(store: Path, error: OSError) -> MesosGpuError:
    where = f"the driver volumes' directory {store}"
    elsewhere = "choose another directory by --store or MESOS_GPU_VOLUMES"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return Unavailable(f"{where} has no space left", remedy=f"free some, or {elsewhere}")
        case errno.EROFS:
            return Unavailable(f"{where} is on a read-only file system", remedy=elsewhere)
        case errno.EACCES | errno.EPERM:
            return Unavailable(f"{where} cannot be written: {error}", remedy=f"run as root, or {elsewhere}")
        case _:
            return Unavailable(f"{where} cannot be used: {error}", remedy=elsewhere)
