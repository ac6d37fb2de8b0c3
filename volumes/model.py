"""The nouns of driver volumes: what a host has, what a volume is to hold, and why not the rest.

Paths of a host are absolute and seen from its root ("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), wherever that root is.
"""

import posixpath
from dataclasses import dataclass
from enum import Enum

from volumes.keys import key_of


class Group(Enum):
    """What a file of the driver is for: the driver capabilities of NVIDIA's container runtime."""

    UTILITY = "utility"
    COMPUTE = "compute"
    VIDEO = "video"
    GRAPHICS = "graphics"
    DISPLAY = "display"
    NGX = "ngx"


@dataclass(frozen=True, slots=True)
class Elf:
    """What an ELF file says of itself.

    Attributes:
        bits: 32 or 64, of its class.
        machine: As `uname -m` has it: "x86_64", "i686", "aarch64", "ppc64le", "armv7l"; else "EM_…".
        soname: DT_SONAME.
        needed: DT_NEEDED, in order.
        abi: The oldest kernel of its NT_GNU_ABI_TAG note, (2, 3, 99); None: it has no such note.
        glibc: The newest GLIBC_* version that it needs, (2, 17); empty: none.
        interpreter: Path of the loader that starts it as a program; None for a library.
    """

    bits: int
    machine: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    abi: tuple[int, ...] | None = None
    glibc: tuple[int, ...] = ()
    interpreter: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a host.

    Attributes:
        path: Without symbolic links.
        names: All under which it is found (links in library directories, names in the loader's cache), sorted; its
            own among them.
        elf: None: it is no ELF file.
        cached: Names under which the loader's cache has it, sorted.
        hwcap: The loader's subdirectory for better processors that it is in ("glibc-hwcaps/x86-64-v3", "tls"); "":
            none.
        mentions: Driver versions in the content of a program, and of a library whose name has no version; empty: it
            was not searched, or has none.
    """

    path: str
    names: tuple[str, ...] = ()
    elf: Elf | None = None
    hwcap: str = ""
    cached: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """Return its path without the last part."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the driver that is no program and no library, such as a description of it for a loader.

    Attributes:
        path: Without symbolic links.
        place: Directory below `share` in which programs search for it, "glvnd/egl_vendor.d".
        name: Name under which it was found, "10_nvidia.json".
        text: Content of a JSON file; None for a file of another kind.
    """

    path: str
    place: str
    name: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that the driver's own list for containers names.

    Attributes:
        name: Name without a directory, "libcuda.so.580.65.06".
        kind: "LIB", "BINARY", "FIRMWARE" and other words of the list.
    """

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """A file that is not taken.

    Attributes:
        path: Path on the host.
        reason: Reason, in words for people.
        warned: Whether a task may miss the file: it is of this driver and lies beside what is taken.
    """

    path: str
    reason: str
    warned: bool = False


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of a host that may be of the driver.

    Attributes:
        libraries: Shared objects of the loader's cache and of the standard directories that have a name of the
            driver's, of whatever version and vendor.
        programs: Of the directories of programs, those with a name of the driver's.
        unreadable: What could not be read, or led outside the root, or can be changed by others than root.
        data: Descriptions for loaders, and what OptiX reads, in the order of preference.
        listed: Lists of files for containers, of all drivers that are there; empty for drivers without such a list.
    """

    libraries: tuple[File, ...] = ()
    programs: tuple[File, ...] = ()
    unreadable: tuple[Excluded, ...] = ()
    data: tuple[DataFile, ...] = ()
    listed: tuple[ListedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a volume.

    Attributes:
        target: Path below the volume, "lib64/libcuda.so.535.261.03".
        source: Path on the host.
        group: Group of the file.
        own: Whether it is a file of this project; then `source` is its path here, whatever the host's root is.
        text: Content that is written in place of the source's; None for the source's own.
    """

    target: str
    source: str
    group: Group
    own: bool = False
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link of a volume, to a file of it.

    Attributes:
        target: Path of the link below the volume, "lib64/libcuda.so.1".
        to: Path that the link has, relative to its own directory.
    """

    target: str
    to: str

    @property
    def file(self) -> str:
        """Return the path below the volume of the file that it leads to."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.target), self.to))

    @property
    def name(self) -> str:
        """Return the path that it has below `bin`, `lib` or `lib64`."""
        return self.target.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Plan:
    """A volume that could be built. All sorted by target or path; no target twice.

    `missing`: what programs will want and this host does not have, in words. `variant`: what tells it from the plain
    volume of that driver, which has "".
    """

    version: str
    entries: tuple[Entry, ...] = ()
    links: tuple[Link, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    missing: tuple[str, ...] = ()
    variant: str = ""

    @property
    def key(self) -> str:
        """What its store knows it by."""
        return key_of(self.version, self.variant)

    @property
    def warnings(self) -> tuple[Excluded, ...]:
        """The excluded files that a task may miss."""
        return tuple(each for each in self.excluded if each.warned)
