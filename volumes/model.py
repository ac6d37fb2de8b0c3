"""The data types of driver volumes: files of a host, plans of volumes, and reasons for excluded files.

Paths of a host are absolute and seen from its root ("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), wherever that
root is.
"""

import posixpath
from dataclasses import dataclass
from enum import Enum

from volumes.keys import key_of


class Group(Enum):
    """Purposes of driver files: the driver capabilities of NVIDIA's container runtime."""

    UTILITY = "utility"
    COMPUTE = "compute"
    VIDEO = "video"
    GRAPHICS = "graphics"
    DISPLAY = "display"
    NGX = "ngx"


@dataclass(frozen=True, slots=True)
class Elf:
    """Fields of an ELF file.

    Attributes:
        bits: 32 or 64, by the file's class.
        machine: Machine in the words of `uname -m`: "x86_64", "i686", "aarch64", "ppc64le", "armv7l"; else
            "EM_…".
        soname: Value of DT_SONAME; None if it is missing.
        needed: Values of DT_NEEDED, in order.
        abi: The oldest kernel in its NT_GNU_ABI_TAG note, (2, 3, 99); None if it has no such note.
        glibc: The newest GLIBC_* version that it needs, (2, 17); empty if it needs none.
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
        path: Path without symbolic links.
        names: Sorted names of the file, also its own: those of links in library directories, and in the
            loader's cache.
        elf: Fields of the ELF file; None if it is not an ELF file.
        hwcap: The loader's subdirectory for better processors in which it lies ("glibc-hwcaps/x86-64-v3",
            "tls"), or "".
        cached: Names of the file in the loader's cache, sorted.
        mentions: Driver versions in the content of a program, or of a library whose name has no version;
            empty if it has none or was not searched.
    """

    path: str
    names: tuple[str, ...] = ()
    elf: Elf | None = None
    hwcap: str = ""
    cached: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """Return the path without the last part."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A driver file other than a program or a library, such as a description of the driver for a loader.

    Attributes:
        path: Path without symbolic links.
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
        warned: Whether a task may miss the file, as it is of this driver and lies beside files that are
            taken.
    """

    path: str
    reason: str
    warned: bool = False


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of a host that may be of the driver.

    Attributes:
        libraries: Shared objects of the loader's cache and of the standard directories that have a name of
            the driver's, of whatever version and vendor.
        programs: Programs with a name of the driver's, from the directories of programs.
        unreadable: Files that could not be read, led outside the root, or can be changed by users other than
            root.
        data: Descriptions for loaders, and OptiX's data, in the order of preference.
        listed: Lists of files for containers, of all drivers on the host; empty for drivers without such a
            list.
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
    """A plan of a volume. Everything is sorted by target or path; no target occurs twice.

    Attributes:
        version: Version of the driver.
        entries: Files of the volume.
        links: Symbolic links of the volume.
        excluded: Files of the host that are not taken.
        missing: Files that programs will need and this host does not have, in words.
        variant: Name of the variant; "" for the plain volume of that driver.
    """

    version: str
    entries: tuple[Entry, ...] = ()
    links: tuple[Link, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    missing: tuple[str, ...] = ()
    variant: str = ""

    @property
    def key(self) -> str:
        """Return the key of the volume in its store."""
        return key_of(self.version, self.variant)

    @property
    def warnings(self) -> tuple[Excluded, ...]:
        """Return the excluded files that a task may miss."""
        return tuple(each for each in self.excluded if each.warned)
