"""The nouns of driver volumes: what a host has, what a volume is to hold, and why not the rest.

Paths of a host are absolute and seen from its root ("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), wherever that root is.
"""

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
    """

    bits: int
    machine: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    abi: tuple[int, ...] | None = None
    glibc: tuple[int, ...] = ()


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
    """

    path: str
    names: tuple[str, ...] = ()
    elf: Elf | None = None
    hwcap: str = ""
    cached: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Excluded:
    """A file that is not taken, and why, for people."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The files of a host that may be of the driver.

    Attributes:
        libraries: Shared objects of the loader's cache and of the standard directories that have a name of the
            driver's, of whatever version and vendor.
        programs: Of the directories of programs, those with a name of the driver's.
        unreadable: What could not be read, or led outside the root.
    """

    libraries: tuple[File, ...] = ()
    programs: tuple[File, ...] = ()
    unreadable: tuple[Excluded, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a volume. `target`: below the volume, "lib64/libcuda.so.535.261.03"; `source`: on the host. `own`: it
    is of this project, and `source` its path here, whatever the host's root is."""

    target: str
    source: str
    group: Group
    own: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link of a volume, to a file in its own directory. `target`: "lib64/libcuda.so.1"."""

    target: str
    to: str


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
