"""What a host has of the driver: found through the loader's cache, and in the directories where drivers are put.

Nothing outside the given root is looked at, whatever links say.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Damaged
from volumes.elf import read_elf
from volumes.ldcache import CacheEntry, parse
from volumes.manifest import is_driver_name, is_driver_program
from volumes.model import DriverFiles, Elf, Excluded, File
from volumes.roots import Root

CACHE: Final = "/etc/ld.so.cache"
_TRIPLETS: Final = (
    "x86_64-linux-gnu",
    "i386-linux-gnu",
    "aarch64-linux-gnu",
    "arm-linux-gnueabihf",
    "powerpc64le-linux-gnu",
)
#: Of Debian and Ubuntu (triplets; nvidia/current, nvidia/tesla-535, before that nvidia-384), RHEL (lib64,
#: lib64/nvidia), others.
_LIBRARY_DIRECTORIES: Final = (
    *(f"{top}/{triplet}" for top in ("/usr/lib", "/lib") for triplet in _TRIPLETS),
    *(
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/lib",
        "/usr/lib32",
        "/lib32",
        "/usr/local/lib",
        "/usr/local/lib64",
    ),
)
_BELOW_LIBRARIES: Final = ("", "nvidia", "vdpau", "tls")
_PROGRAM_DIRECTORIES: Final = (
    *("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/bin"),
)


def discover(root: Path = Path("/")) -> DriverFiles:
    """All files that have a name of the driver's, in the order in which the loader and a shell would find them.

    Raises:
        NotFound: There is no such root.
    """
    fs = Root(root)
    finder = _Finder(fs)
    for name, path in _cached(fs, finder):
        if is_driver_name(name):
            finder.library(name, path, cached=True)
    for directory in _library_directories(fs, finder):
        for name in fs.listdir(directory):
            if is_driver_name(name):
                finder.library(name, f"{directory}/{name}")
    for directory in _program_directories(fs):
        for name in fs.listdir(directory):
            if is_driver_program(name):
                finder.program(name, f"{directory}/{name}")
    return finder.all()


class _Finder:
    """Files by where their links lead, with all names that lead there."""

    def __init__(self, fs: Root) -> None:
        self._fs = fs
        self.libraries: dict[str, set[str]] = {}
        self._programs: dict[str, set[str]] = {}
        self._cached: dict[str, set[str]] = {}
        self.unreadable: dict[str, str] = {}

    def library(self, name: str, path: str, *, cached: bool = False) -> None:
        real = self._add(self.libraries, name, path)
        if real and cached:
            self._cached.setdefault(real, set()).add(name)

    def program(self, name: str, path: str) -> None:
        self._add(self._programs, name, path)

    def _add(self, files: dict[str, set[str]], name: str, path: str) -> str | None:
        real = self._fs.resolve(path)
        if real is None:
            self.unreadable[path] = "it leads nowhere"
        elif self._fs.is_file(real):
            files.setdefault(real, {real.rpartition("/")[2]}).add(name)
        return real

    def all(self) -> DriverFiles:
        libraries = [self._file(path, names) for path, names in self.libraries.items()]
        programs = [self._file(path, names) for path, names in self._programs.items()]
        return DriverFiles(
            tuple(file for file in libraries if file),
            tuple(file for file in programs if file),
            tuple(Excluded(path, why) for path, why in sorted(self.unreadable.items())),
        )

    def _file(self, path: str, names: set[str]) -> File | None:
        try:
            elf = self._elf(path)
        except (OSError, Damaged) as error:
            self.unreadable[path] = f"it cannot be read: {getattr(error, 'what', error)}"
            return None
        cached = tuple(sorted(self._cached.get(path, ())))
        return File(path, tuple(sorted(names)), elf, _hwcap(path), cached)

    def _elf(self, path: str) -> Elf | None:
        with self._fs.open(path) as file:
            return read_elf(file)


def _cached(fs: Root, finder: _Finder) -> Iterator[tuple[str, str]]:
    if fs.resolve(CACHE) is None:
        return
    try:
        entries: tuple[CacheEntry, ...] = parse(fs.read_bytes(CACHE))
    except (OSError, Damaged) as error:
        finder.unreadable[CACHE] = f"it cannot be read: {getattr(error, 'what', error)}"
        return
    for entry in entries:
        yield entry.name, entry.path


def _library_directories(fs: Root, finder: _Finder) -> list[str]:
    """Where the cache's files of the driver are, then the usual ones; each once."""
    cached = [path.rpartition("/")[0] for path in finder.libraries]
    usual = [f"{top}/{below}".rstrip("/") for top in _LIBRARY_DIRECTORIES for below in _BELOW_LIBRARIES]
    branches = [f"/usr/lib/{name}" for name in fs.listdir("/usr/lib") if name.startswith("nvidia-")]
    flavours = [
        f"{top}/nvidia/{name}" for top in _LIBRARY_DIRECTORIES for name in fs.listdir(f"{top}/nvidia")
    ]
    beside = [f"{directory}/tls" for directory in cached]
    return _resolved(fs, (*cached, *usual, *flavours, *branches, *beside))


def _program_directories(fs: Root) -> list[str]:
    branches = [f"/usr/lib/{name}/bin" for name in fs.listdir("/usr/lib") if name.startswith("nvidia-")]
    flavours = [f"/usr/lib/nvidia/{name}" for name in fs.listdir("/usr/lib/nvidia")]
    return _resolved(fs, (*_PROGRAM_DIRECTORIES, *flavours, *branches))


def _resolved(fs: Root, directories: Iterable[str]) -> list[str]:
    real = (fs.resolve(directory) for directory in directories)
    return list(dict.fromkeys(path for path in real if path is not None))


def _hwcap(path: str) -> str:
    *_, above, parent, _ = ("", "", *path.split("/"))
    if above == "glibc-hwcaps":
        return f"{above}/{parent}"
    return parent if parent == "tls" else ""
