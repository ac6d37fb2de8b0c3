"""The directory of driver volumes: what is in it, whether it is whole, and what can go.

`nvidia_<version>` is a symbolic link to a build, `builds/<version>-<digest>`, which is never changed: a rebuilt
volume is another build, and the link is switched. So whoever has a build keeps exactly that one.
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
        target: Below the volume, "lib64/libcuda.so.535.261.03".
        source: On the host, as seen from the root that it was built from.
        group: As `volumes.model.Group`.
        sha256: Of its content, hexadecimal.
        source_mtime_ns: Of the source, to see that it has changed since.
        how: "hard link", "reflink", "copy", or "rewritten" for a text that is not the source's own.
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
    """A build.

    `links`: of each symbolic link where it is and where to. `current`: `nvidia_<version>` leads to it. `problem`: why
    its record cannot be read; then it seems empty. `variant`: "" for the plain one of that driver.
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
        """What its store knows it by."""
        return key_of(self.version, self.variant)

    @property
    def name(self) -> str:
        """The name by which the build is leased: "535.261.03-0123456789ab"."""
        return self.path.name

    @property
    def size_bytes(self) -> int:
        """The size of all files, bytes, whether or not they share their blocks with the host's."""
        return sum(file.size_bytes for file in self.files)


class Store:
    """All volumes of a host."""

    def __init__(self, path: Path) -> None:
        """Name the store's directory, which need not exist yet."""
        self.path = path
        self.builds = path / "builds"

    def path_of(self, key: str) -> Path:
        """Where a volume is, as `volumes.keys.link_of` says it."""
        return link_of(self.path, key)

    def current(self, key: str) -> Path | None:
        """The build that tasks of that driver get, as `volumes.keys.current` says it."""
        return current(self.path, key)

    def get(self, key: str) -> Volume:
        """The current volume of a version, or of a variant.

        Raises:
            NotFound: There is none.
            Damaged: Its record cannot be read.
        """
        build = self.current(key)
        if build is None:
            there = ", ".join(volume.key for volume in self.volumes() if volume.current) or "none"
            raise NotFound(
                f"there is no driver volume of {key} in {self.path}; there: {there}",
                remedy="build it: mesos-gpu volume build",
            )
        return self._read(build)

    def volumes(self) -> tuple[Volume, ...]:
        """All builds, by name; also those whose records cannot be read."""
        if not self.builds.is_dir():
            return ()
        return tuple(self.read(path) for path in sorted(self.builds.iterdir()) if path.is_dir())

    def read(self, build: Path) -> Volume:
        """A build; one whose record cannot be read has a `problem`."""
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
                remedy=f"remove {build} when no task uses it, and build the volume anew",
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among builders and collectors of this directory; a lock that its holder's death opens.

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
        """Remove what a killed builder or collector left; to be called with the lock held."""
        for path in list(self.path.iterdir()):
            if path.name.startswith(BUILDING):
                remove(path)
        for path in list(self.builds.iterdir()):
            if path.name.startswith(_REMOVED) and held is not None:
                self._finish_removal(path, held())

    def collect(
        self, held: Callable[[], Collection[str]], keep: Callable[[Volume], bool]
    ) -> tuple[Volume, ...]:
        """Remove each build that nobody holds and that is not to be kept.

        Args:
            held: Names of builds that tasks have; asked again once a build is out of reach, for a task may have
                taken it meanwhile.
            keep: Whether to keep a build all the same.

        Returns:
            What was removed.

        Raises:
            MesosGpuError: From `held`: then nothing more is removed.
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
    """Return the directories of a volume that has files and links at these targets, each after the one above it."""
    above = {str(path) for target in targets for path in PurePosixPath(target).parents}
    return tuple(sorted({*DIRECTORIES, *((REGION,) if variant else ()), *above} - {"."}))


def verify(volume: Volume) -> tuple[str, ...]:
    """What of a volume is not as it was built, in words: missing, changed, added. Reads all of it."""
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
    """A directory with all that is in it, or a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(store: Path) -> Iterator[None]:
    """Say what a file system's refusal means.

    Raises:
        Unavailable: In place of an OSError.
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
