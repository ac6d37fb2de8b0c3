"""File-by-file comparison with other ways to give a container the driver of the same host. Without side
effects.

Their lists and rules, restated from their sources: Mesos 1.11.0
(src/slave/containerizer/mesos/isolators/gpu/volume.cpp), nvidia-docker 1.0.1 (src/nvidia/volumes.go,
src/ldcache/ldcache.go), libnvidia-container at 00b4b47 (src/nvc_info.c).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from volumes.manifest import DRIVER_VERSION, LIBRARIES, PROGRAMS, TLS_ABI, is_left_to_host, stem_of
from volumes.model import DriverFiles, Elf, File, Plan

YES: Final = "yes"
_OF_HOST: Final = frozenset(("FIRMWARE", "MODPROBE"))  # kinds of files in the driver's own list
_NOT_LISTED: Final = "no: not in its list"
_NOT_CACHED: Final = "no: not in the loader's cache"
_ENTRY_POINTS: Final = frozenset(("libGL", "libEGL", "libGLESv1_CM", "libGLESv2"))

_CLASSIC: Final = (
    "libnvidia-ml libcuda libnvidia-opencl libnvidia-ptxjitcompiler libnvidia-fatbinaryloader libnvidia-compiler "
    "libvdpau_nvidia libnvidia-encode libnvcuvid libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi "
    "libnvidia-fbc libnvidia-ifr libGLX_nvidia libEGL_nvidia libGLESv2_nvidia libGLESv1_CM_nvidia "
    "libGL libEGL libGLESv1_CM libGLESv2"
)
_CURRENT: Final = (
    "libnvidia-cfg libnvidia-nscq libcudadebugger libnvidia-gpucomp libnvidia-allocator libnvidia-pkcs11 "
    "libnvidia-pkcs11-openssl3 libnvidia-nvvm libnvidia-tileiras libnvidia-opticalflow libnvidia-rtcore libnvoptix "
    "libnvidia-glvkspirv libnvidia-cbl libnvidia-ngx"
)
_CLASSIC_PROGRAMS: Final = frozenset(
    f"nvidia-{name}" for name in ("smi", "debugdump", "persistenced", "cuda-mps-control", "cuda-mps-server")
)
_MACHINES_OF_NVIDIA_DOCKER: Final = frozenset(("x86_64", "i686", "ppc64le"))


@dataclass(frozen=True, slots=True)
class Other:
    """Another way to give a container the driver.

    Attributes:
        libraries: Stems of the libraries on its list.
        programs: Names of the programs on its list.
        refused: Function that returns why it does not take a listed library, or None if it takes it.
    """

    libraries: frozenset[str]
    programs: frozenset[str]
    refused: Callable[[str, str, Elf, str], str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A file of the host, with "yes" or "no" and the reason for each way."""

    path: str
    group: str
    ours: str
    mesos: str
    nvidia_docker: str
    libnvidia_container: str


def _is_for_old_threads(stem: str, elf: Elf) -> bool:
    """Return whether a library is the variant of libnvidia-tls for threads before NPTL."""
    return stem == "libnvidia-tls" and elf.abi != TLS_ABI


def _refused_by_mesos(stem: str, _name: str, elf: Elf, _version: str) -> str | None:
    """Return why Mesos takes no such library of any version, or None if it does.

    It takes libGLdispatch.so only without the .0 that the name has.
    """
    vendor = any(
        n == "libGLdispatch.so" or n.startswith(("libnvidia-gl", "libnvidia-egl")) for n in elf.needed
    )
    if stem in _ENTRY_POINTS and not vendor:
        return "no: for another vendor's"
    return "no: old threads" if _is_for_old_threads(stem, elf) else None


def _refused_by_nvidia_docker(stem: str, _name: str, elf: Elf, _version: str) -> str | None:
    if elf.machine not in _MACHINES_OF_NVIDIA_DOCKER:
        return f"no: not for {elf.machine}"
    ours = ("libnvidia-glcore.so", "libnvidia-eglcore.so", "libGLdispatch.so")
    if stem in _ENTRY_POINTS and not any(each in name for name in elf.needed for each in ours):
        return "no: for another vendor's"
    return "no: old threads" if _is_for_old_threads(stem, elf) else None


def _refused_by_libnvidia_container(stem: str, name: str, elf: Elf, version: str) -> str | None:
    if _is_for_old_threads(stem, elf):
        return "no: old threads"
    if not name.endswith(version):
        return "no: not of the version"
    core = any(n.startswith(("libnvidia-glcore.so", "libnvidia-eglcore.so")) for n in elf.needed)
    return "no: for another vendor's" if stem in _ENTRY_POINTS and not core else None


OTHERS: Final[Mapping[str, Other]] = {
    "mesos": Other(
        frozenset((*_CLASSIC.split(), "libnvidia-cfg")),
        _CLASSIC_PROGRAMS,
        _refused_by_mesos,
    ),
    "nvidia_docker": Other(
        frozenset((*_CLASSIC.split(), "libGLX", "libOpenGL", "libGLdispatch", "libnvidia-egl-wayland")),
        _CLASSIC_PROGRAMS,
        _refused_by_nvidia_docker,
    ),
    "libnvidia_container": Other(
        frozenset((*_CLASSIC.split(), *_CURRENT.split())),
        _CLASSIC_PROGRAMS | {"nv-fabricmanager"},
        _refused_by_libnvidia_container,
    ),
}


def compare(files: DriverFiles, ours: Plan) -> tuple[Row, ...]:
    """Compare the plans: return a row for each file that this project or another way takes, programs first."""
    taken = {entry.source: entry.group.value for entry in ours.entries}
    reasons = {each.path: f"no: {each.reason}" for each in ours.excluded}
    rows = []
    for file in sorted((*files.libraries, *files.programs), key=lambda file: (".so" in file.name, file.path)):
        verdicts = {name: _taken_by(other, file, ours.version) for name, other in OTHERS.items()}
        if file.path in taken or YES in verdicts.values():
            stem = stem_of(file.name)
            # Their lists are parts of this project's.
            group = taken.get(file.path) or (LIBRARIES.get(stem) or PROGRAMS[stem]).value
            rows.append(Row(file.path, group, YES if file.path in taken else reasons[file.path], **verdicts))
    return tuple(rows)


def _taken_by(other: Other, file: File, version: str) -> str:
    stem = stem_of(file.name)
    if stem == file.name:
        return YES if stem in other.programs else _NOT_LISTED
    if stem not in other.libraries:
        return _NOT_LISTED
    if not any(stem_of(name) == stem for name in file.cached):
        return _NOT_CACHED
    return (other.refused(stem, file.name, file.elf, version) if file.elf else "no: no ELF file") or YES


@dataclass(frozen=True, slots=True)
class Counted:
    """Comparison of a plan with the driver's own list of its files for containers, which drivers have since
    570.

    Attributes:
        listed: Number of files on the list; 0 for a driver without a list.
        taken: Number of listed files in the volume.
        left: Names of listed files that serve the host alone, such as firmware.
        absent: Names of listed files that are not on this host.
        refused: Names of listed files that are on this host but not in the volume.
        more: Number of files in the volume that are not on the list.
    """

    listed: int
    taken: int
    left: tuple[str, ...]
    absent: tuple[str, ...]
    refused: tuple[str, ...]
    more: int

    @property
    def text(self) -> str:
        """Return the numbers in words."""
        if not self.listed:
            return "the driver has no list of its own of files for containers (drivers have one since 570)"
        parts = [
            f"{self.taken} are taken",
            f"{len(self.left)} serve the host alone",
            f"{len(self.absent)} are not on this host"
            + (f" ({', '.join(self.absent)})" if self.absent else ""),
        ]
        parts += [f"{len(self.refused)} are left out ({', '.join(self.refused)})"] if self.refused else []
        text = f"of the {self.listed} files that the driver lists for containers {', '.join(parts)}"
        return f"{text}; {self.more} more are taken"


def counted(files: DriverFiles, ours: Plan) -> Counted:
    """Compare a plan with the driver's own list of files."""
    targets = [*(entry.target for entry in ours.entries), *(link.target for link in ours.links)]
    every = {_listed_name(target) for target in targets}
    taken, left = list[str](), list[str]()
    absent, refused = list[str](), list[str]()
    there = {name for file in (*files.libraries, *files.programs) for name in file.names}
    listed = files.listed if any(each.name.endswith(f".so.{ours.version}") for each in files.listed) else ()
    for name in sorted({each.name for each in listed}):
        kinds = {each.kind for each in listed if each.name == name}
        version = DRIVER_VERSION.search(name)
        if version and version[1] != ours.version:  # from the list of another driver
            continue
        if name in every:
            taken.append(name)
        elif kinds & _OF_HOST or is_left_to_host(name):
            left.append(name)
        else:
            (refused if name in there else absent).append(name)
    more = sum(_listed_name(entry.target) not in taken for entry in ours.entries) if listed else 0
    number = len(taken) + len(left) + len(absent) + len(refused)
    return Counted(number, len(taken), tuple(left), tuple(absent), tuple(refused), more)


def _listed_name(target: str) -> str:
    """Return the name of a file as on the list: a description without the machine that distributions add."""
    return re.sub(r"\.[\w-]+\.json$", ".json", target.rpartition("/")[2])


def markdown(rows: Sequence[Row]) -> str:
    """Write a table in Markdown, with a sum of each column."""
    lines = [
        "| File | Group | mesos_gpu | Mesos 1.11.0 | nvidia-docker 1.0.1 | libnvidia-container |",
        "|---|---|---|---|---|---|",
    ]
    columns = [(row.ours, row.mesos, row.nvidia_docker, row.libnvidia_container) for row in rows]
    for row, cells in zip(rows, columns, strict=True):
        lines.append(f"| `{row.path}` | {row.group} | {' | '.join(cells)} |")
    counts = [sum(cell == YES for cell in column) for column in zip(*columns, strict=True)]
    lines.append(f"| **of {len(rows)}** | | {' | '.join(f'**{count}**' for count in counts)} |")
    return "\n".join(lines) + "\n"
