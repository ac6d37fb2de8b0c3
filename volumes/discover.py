"""Discovery of the driver files of a host: by the loader's cache, in usual directories, and beside files
found there.

Nothing outside the given root is read, wherever links lead.
"""

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Damaged, NotFound
from volumes.elf import read_elf
from volumes.graphics import PLACES, belongs, place_of
from volumes.ldcache import CacheEntry, parse
from volumes.manifest import DRIVER_VERSION, is_core_library, is_driver_name, is_driver_program, stem_of
from volumes.model import DataFile, DriverFiles, Elf, Excluded, File, ListedFile
from volumes.places import (
    CACHES,
    LIBRARY_OPTION,
    LIBRARY_PATH,
    PROGRAM_OPTION,
    PROGRAM_PATH,
    Given,
    below_library,
    data_around,
    data_directories,
    libraries_around,
    library_directories,
    program_directories,
    programs_around,
    trees,
)
from volumes.roots import Root

#: The driver's own list of its files for containers, below a directory of data; since 570.
LIST: Final = "nvidia/files.d/sandboxutils-filelist.json"
_MAX_TEXT, _MAX_SEARCHED, _MAX_FILE = 1 << 20, 64 << 20, 4 << 30  # bytes; the largest library has 0.2 GiB
_MENTIONED: Final = re.compile(rb"(?<![\d.])\d{3}\.\d{2,3}(?:\.\d{2,})?(?![\d.])")


def discover(root: Path = Path("/"), given: Given | None = None) -> DriverFiles:
    """Find all files with a name of the driver's, in the order in which the loader and a shell would find
    them.

    Args:
        root: Root of the host.
        given: Directories that an operator names; None to search the host.

    Raises:
        NotFound: The root or a named directory does not exist, or a named directory has no file of a driver.
        Conflict: Users other than root can write a named directory.
    """
    fs, given = Root(root), given or Given()
    given.check(fs)
    finder = _Finder(fs)
    below = () if given.libraries and given.programs else tuple(trees(fs))
    for path in below:
        finder.refuse_directory(path)
    if given.libraries:
        finder.search_libraries(given.libraries)
        if not finder.homes:
            raise _nothing_in(LIBRARY_OPTION, LIBRARY_PATH, given.libraries, "library of a driver")
    else:
        for name, path in _cached(fs, finder):
            if is_driver_name(name):
                finder.library(name, path, cached=True)
        finder.search_libraries((*library_directories(fs), *below))
    if given.programs:
        finder.search_programs(given.programs)
        if not finder.programs:
            raise _nothing_in(PROGRAM_OPTION, PROGRAM_PATH, given.programs, "program of a driver")
    else:
        beside = (path for home in tuple(finder.homes) for path in programs_around(home))
        finder.search_programs((*beside, *program_directories(fs), *below))
    if not given.libraries:
        finder.search_libraries(
            path for real in tuple(finder.programs) for path in libraries_around(_above(real))
        )
    around = (path for home in finder.homes for path in data_around(home))
    finder.search_data((*around, *(() if given.libraries else data_directories(fs))))
    return finder.all()


def _nothing_in(option: str, variable: str, paths: Iterable[str], what: str) -> NotFound:
    return NotFound(
        f"there is no {what} in {', '.join(paths)}, which {option} ({variable}) names",
        remedy="name the directory that has them, such as the one of libcuda.so.1 or of nvidia-smi",
    )


def _above(path: str) -> str:
    return path.rpartition("/")[0]


class _Finder:
    """Discovered files by their resolved paths, with all names that lead there."""

    def __init__(self, fs: Root) -> None:
        self._fs = fs
        self._libraries: dict[str, set[str]] = {}
        self.programs: dict[str, set[str]] = {}
        self._cached: dict[str, set[str]] = {}
        self._data: dict[str, DataFile] = {}
        self._listed: set[ListedFile] = set()  # lists of all drivers on the host
        self._unreadable: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # files that users other than root can change
        self._refused_directories: dict[str, str] = {}
        self._searched: set[str] = set()
        self.homes: dict[str, None] = {}  # directories of the driver's core libraries, and of links to them

    def library(self, name: str, path: str, *, cached: bool = False) -> None:
        """Add a library by a name under which it is found."""
        real = self._add(self._libraries, name, path)
        if real and cached:
            self._cached.setdefault(real, set()).add(name)
        if real and is_core_library(name):
            self.homes |= dict.fromkeys((_above(path), _above(real)))

    def unreadable(self, path: str, error: Exception) -> None:
        """Record a file as unreadable."""
        self._unreadable[path] = f"it cannot be read: {getattr(error, 'what', error)}"

    def refuse_directory(self, path: str) -> None:
        """Record a directory as refused if users other than root can write it."""
        writer = self._fs.find_writer(path)
        if writer is not None:
            self._refused_directories[path] = f"no file below it is taken: {writer}"

    def _is_refused(self, real: str) -> bool:
        """Return whether users other than root can change a file; if so, record it as refused."""
        writer = self._fs.find_writer(real)
        if writer is not None:
            self._refused[real] = f"only files that root alone can change are taken: {writer}"
        return writer is not None

    def search_libraries(self, directories: Iterable[str]) -> None:
        """Search directories for libraries, and also the directories of the core libraries found there."""
        near = [path for home in self.homes for path in (home, *below_library(home))]
        queue = deque((*near, *directories))
        while queue:
            directory = self._fs.resolve(queue.popleft())
            if directory is None or directory in self._searched:
                continue
            self._searched.add(directory)
            known = len(self.homes)
            for name in self._fs.listdir(directory):
                if is_driver_name(name):
                    self.library(name, f"{directory}/{name}")
            homes = tuple(self.homes)[known:]
            queue.extendleft(reversed([path for home in homes for path in (home, *below_library(home))]))

    def search_programs(self, directories: Iterable[str]) -> None:
        """Search directories for programs."""
        for directory in dict.fromkeys(self._fs.resolve(path) for path in directories):
            for name in self._fs.listdir(directory) if directory is not None else ():
                if is_driver_program(name):
                    self._add(self.programs, name, f"{directory}/{name}")

    def search_data(self, directories: Iterable[str]) -> None:
        """Search directories for data, which may lie in their subdirectories or in the directories
        themselves.
        """
        for directory in dict.fromkeys(self._fs.resolve(path) for path in directories):
            if directory is None:
                continue
            for place in PLACES:
                for name in self._fs.listdir(f"{directory}/{place}"):
                    if belongs(name, place):
                        self._add_data(place, name, f"{directory}/{place}/{name}")
            for name in self._fs.listdir(directory):
                its_place = place_of(name)
                if its_place is not None:
                    self._add_data(its_place, name, f"{directory}/{name}")
            for path in (LIST, LIST.rpartition("/")[2]):
                self._listed |= self._list(f"{directory}/{path}")

    def _add(self, files: dict[str, set[str]], name: str, path: str) -> str | None:
        real = self._fs.resolve(path)
        if real is None:
            self._unreadable[path] = "it leads nowhere"
        elif self._fs.is_file(real):
            if self._is_refused(real):
                return None
            files.setdefault(real, {real.rpartition("/")[2]}).add(name)
        elif files is self._libraries:
            self._unreadable[path] = "it is no regular file"
        return real

    def _add_data(self, place: str, name: str, path: str) -> None:
        real = self._fs.resolve(path)
        if real is None:
            self._unreadable[path] = "it leads nowhere"
        elif not belongs(real.rpartition("/")[2], place) and not name.endswith(".json"):
            self._unreadable[path] = f"it leads to {real}, which has another name"
        elif real not in self._data and self._fs.is_file(real) and not self._is_refused(real):
            try:
                text = self._text(real) if name.endswith(".json") else None
            except (OSError, ValueError) as error:
                self.unreadable(real, error)
            else:
                self._data[real] = DataFile(real, place, name, text)

    def _text(self, path: str) -> str:
        with self._fs.open(path) as file:
            content = file.read(_MAX_TEXT + 1)
        if len(content) > _MAX_TEXT:
            raise ValueError(f"it is larger than {_MAX_TEXT >> 10} KiB")
        return content.decode()

    def _list(self, path: str) -> set[ListedFile]:
        real = self._fs.resolve(path)
        if real is None:
            return set()
        try:
            listed = json.loads(self._text(real))
            return {ListedFile(str(row["name"]).rpartition("/")[2], str(row["type"])) for row in listed}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.unreadable(real, error)
            return set()

    def all(self) -> DriverFiles:
        """Return all discovered files, with the ELF fields of each."""
        libraries = [self._file(path, names) for path, names in self._libraries.items()]
        programs = [self._file(path, names) for path, names in self.programs.items()]
        return DriverFiles(
            tuple(file for file in libraries if file),
            tuple(file for file in programs if file),
            (
                *(Excluded(path, why) for path, why in sorted(self._unreadable.items())),
                *(Excluded(path, why) for path, why in sorted(self._refused_directories.items())),
                *(Excluded(path, why, warned=True) for path, why in sorted(self._refused.items())),
            ),
            tuple(self._data.values()),
            tuple(sorted(self._listed, key=lambda each: (each.name, each.kind))),
        )

    def _file(self, path: str, names: set[str]) -> File | None:
        name = path.rpartition("/")[2]
        try:
            with self._fs.open(path) as file:
                if os.fstat(file.fileno()).st_size > _MAX_FILE:
                    raise ValueError(f"it is larger than {_MAX_FILE >> 30} GiB")
                elf: Elf | None = read_elf(file)
                mentions: tuple[str, ...] = ()
                if elf is not None and not DRIVER_VERSION.search(name) and _is_of_the_driver(name):
                    file.seek(0)
                    versions = set(_MENTIONED.findall(file.read(_MAX_SEARCHED)))
                    mentions = tuple(sorted(each.decode() for each in versions))
        except (OSError, ValueError, Damaged) as error:
            self.unreadable(path, error)
            return None
        cached = tuple(sorted(self._cached.get(path, ())))
        return File(path, tuple(sorted(names)), elf, _hwcap(path), cached, mentions)


def _is_of_the_driver(name: str) -> bool:
    """Return whether the driver version of a file must be known although its name has no version."""
    return is_core_library(name) or stem_of(name) == name


def _cached(fs: Root, finder: _Finder) -> Iterator[tuple[str, str]]:
    for path in CACHES:
        if fs.resolve(path) is None:
            continue
        try:
            with fs.open(path) as file:
                entries: tuple[CacheEntry, ...] = parse(file.read(_MAX_SEARCHED))
        except (OSError, Damaged) as error:
            finder.unreadable(path, error)
            continue
        for entry in entries:
            yield entry.name, entry.path


def _hwcap(path: str) -> str:
    *_, above, parent, _ = ("", "", *path.split("/"))
    if above == "glibc-hwcaps":
        return f"{above}/{parent}"
    return parent if parent == "tls" else ""
