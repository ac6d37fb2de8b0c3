"""Directories of a host that may hold a driver, from the nearest to the farthest. Links are followed below
the root.

Two kinds of knowledge. Directories by name: those of Debian and Ubuntu, of Red Hat, SUSE and Arch, of NixOS,
Talos, Flatcar, Bottlerocket and Google's Container-Optimized OS, and of NVIDIA's installer. Directories by
neighbourhood: those around a library or program that was found, so that an unknown layout is found from any
part of it.
"""

import fnmatch
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import Conflict, NotFound
from volumes.roots import Root

#: Variables of a node and options of commands that name directories; several are separated by colons.
LIBRARY_PATH: Final = "MESOS_GPU_DRIVER_LIBRARY_PATH"
PROGRAM_PATH: Final = "MESOS_GPU_DRIVER_PROGRAM_PATH"
LIBRARY_OPTION, PROGRAM_OPTION = "--driver-library-path", "--driver-program-path"

#: Caches of the loader: the host's, and that of Talos, whose own programs need no glibc.
CACHES: Final = ("/etc/ld.so.cache", "/usr/local/glibc/etc/ld.so.cache")
_CONF: Final = "/etc/ld.so.conf"
_TRIPLETS: Final = (
    "x86_64-linux-gnu",
    "i386-linux-gnu",
    "aarch64-linux-gnu",
    "arm-linux-gnueabihf",
    "powerpc64le-linux-gnu",
)
_LIBRARY_TOPS: Final = (
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
    *(
        "/run/opengl-driver/lib",
        "/run/opengl-driver-32/lib",
        "/usr/local/glibc/usr/lib",
        "/usr/local/glibc/lib",
    ),
)
_BELOW_LIBRARIES: Final = ("", "nvidia", "vdpau", "tls")
_PROGRAM_TOPS: Final = (
    *("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/bin"),
    *("/run/current-system/sw/bin", "/run/opengl-driver/bin", "/usr/local/glibc/usr/bin"),
)
_DATA_TOPS: Final = ("/etc", "/usr/share", "/usr/local/share", "/run/opengl-driver/share")
#: Roots within the root: of a driver in a container of its own, and of Bottlerocket.
_ROOTS: Final = (
    "",
    "/run/nvidia/driver",
    *(f"/{machine}-bottlerocket-linux-gnu/sys-root" for machine in ("x86_64", "aarch64")),
)
#: Parents of directories that are searched with all their content if "nvidia" is in their names.
_TREES_IN: Final = (
    *(
        "/usr/lib",
        "/usr/lib64",
        "/usr/libexec",
        "/usr/local",
        "/usr/local/lib",
        "/opt",
        "/var/opt",
    ),
    *("/home/kubernetes/bin", "/nix/store"),
)
_MAX_DEPTH, _MAX_DIRECTORIES, _MAX_NAMES = 5, 1000, 20_000
#: Platforms that are not supported, and how their drivers differ.
PLATFORMS: Final[Mapping[str, str]] = {
    "WSL 2": "its libraries are of the driver of Windows, and Linux has no kernel module of it",
    "Jetson": "its driver is a part of Jetson Linux, with libraries and devices of their own",
}
_ENDING: Final = re.compile(r"\.so\b|\.[a-z]{1,5}$")
_MAX_CONF: Final = 1 << 16  # bytes
#: Largest number of levels between a library directory and the directory that has `bin` and `share` too.
_MAX_ANCESTORS: Final = 4


@dataclass(frozen=True, slots=True)
class Given:
    """Directories that an operator names, as paths below the root.

    Attributes:
        libraries: Directories of libraries, which alone are searched for such; empty to search the host.
        programs: Directories of programs, which alone are searched for such; empty to search the host.
    """

    libraries: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def check(self, fs: Root) -> None:
        """Check that all directories exist, and that only root can change their content.

        Raises:
            NotFound: A directory is missing.
            Conflict: Users other than root can write a directory, or one above it.
        """
        for option, variable, paths in (
            (LIBRARY_OPTION, LIBRARY_PATH, self.libraries),
            (PROGRAM_OPTION, PROGRAM_PATH, self.programs),
        ):
            for path in paths:
                if not path.startswith("/") or not fs.is_directory(path):
                    raise NotFound(
                        f"{option} ({variable}) names {path}, but there is no such directory below {fs.path}",
                        remedy="name directories by absolute paths, as seen from the root of the driver",
                    )
                writer = fs.find_writer(fs.resolve(path) or path)
                if writer is not None:
                    raise Conflict(
                        f"{option} ({variable}) names {path}, and {writer}: tasks of all users would run its files",
                        remedy="have the directory and those above it belong to root: chown root, chmod go-w",
                    )


def given_by(env: Mapping[str, str], libraries: Iterable[str] = (), programs: Iterable[str] = ()) -> Given:
    """Return the directories that options name, else those of the node's variables."""
    return Given(
        _split(libraries) or _split([env.get(LIBRARY_PATH, "")]),
        _split(programs) or _split([env.get(PROGRAM_PATH, "")]),
    )


def _split(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(part for path in paths for part in path.split(":") if part)


def library_directories(fs: Root) -> Iterator[str]:
    """Return the directories in which a loader or a distribution has libraries."""
    yield from _configured(fs, _CONF, 0)
    for top in _below_roots(fs, _LIBRARY_TOPS):
        yield from (f"{top}/{below}".rstrip("/") for below in _BELOW_LIBRARIES)


def below_library(directory: str) -> Iterator[str]:
    """Return the directories of further libraries below one that has some of the driver's."""
    return (f"{directory}/{below}" for below in (*_BELOW_LIBRARIES[1:], "32"))


def program_directories(fs: Root) -> Iterator[str]:
    """Return the directories in which a shell or a distribution has programs."""
    return _below_roots(fs, _PROGRAM_TOPS)


def around(directory: str) -> tuple[str, ...]:
    """Return a directory of the driver and those above it, in which `bin`, `lib64` or `share` may lie.

    Apart from the next one above, no directory directly below the root is among them but /usr: others are shared with
    software, and with users, that have nothing to do with the driver.
    """
    parts = directory.strip("/").split("/")
    above = ["/" + "/".join(parts[: len(parts) - up]) for up in range(min(len(parts), _MAX_ANCESTORS) + 1)]
    return tuple(path for up, path in enumerate(above) if up < 2 or path.count("/") > 1 or path == "/usr")


def libraries_around(directory: str) -> Iterator[str]:
    """Return the directories of libraries beside a directory of programs."""
    for above in around(directory)[1:3]:
        for name in ("lib64", "lib", "lib32", *(f"lib/{triplet}" for triplet in _TRIPLETS)):
            yield f"{above.rstrip('/')}/{name}"


def programs_around(directory: str) -> Iterator[str]:
    """Return the directories of programs beside a directory of libraries."""
    for above in around(directory):
        yield from (f"{above.rstrip('/')}/{name}" for name in ("", "bin", "sbin"))


def data_around(directory: str) -> Iterator[str]:
    """Return the directories of data beside a directory of libraries."""
    for above in around(directory):
        yield from (f"{above.rstrip('/')}/{name}" for name in ("share", "etc", ""))


def data_directories(fs: Root) -> Iterator[str]:
    """Return the directories in which a distribution has data."""
    return _below_roots(fs, _DATA_TOPS)


def _below_roots(fs: Root, tops: Iterable[str]) -> Iterator[str]:
    roots = [root for root in _ROOTS if not root or fs.is_directory(root)]
    return (f"{root}{top}" for root in roots for top in tops)


def trees(fs: Root) -> Iterator[str]:
    """Yield the directories named after NVIDIA where software is installed, with their subdirectories;
    limited in number.

    Subdirectories of a directory that users other than root can write are not returned, as no file there is
    taken.
    """
    queue = deque(
        (f"{top}/{name}", 0)
        for top in _below_roots(fs, _TREES_IN)
        for name in fs.listdir(top)
        if "nvidia" in name.lower() and _may_be_directory(name)
    )
    seen: set[str] = set()
    names = 0
    while queue and len(seen) < _MAX_DIRECTORIES and names < _MAX_NAMES:
        path, depth = queue.popleft()
        names += 1
        real = fs.resolve(path)
        if real is None or real in seen or not fs.is_directory(real):
            continue
        seen.add(real)
        yield real
        if depth < _MAX_DEPTH and fs.find_writer(real) is None:
            queue += ((f"{real}/{name}", depth + 1) for name in fs.listdir(real) if _may_be_directory(name))


def _may_be_directory(name: str) -> bool:
    """Return whether a name has no file extension. A version, as in "570.86.15", does not count as one."""
    return not _ENDING.search(name)


def _configured(fs: Root, path: str, depth: int) -> Iterator[str]:
    """Yield the directories that a configuration of the loader names, with those of the files that it
    includes.
    """
    for line in _read(fs, path).splitlines():
        words = line.partition("#")[0].split()
        if words[:1] != ["include"]:
            yield from (word for word in words if word.startswith("/"))
            continue
        for pattern in words[1:] if depth < 2 else ():
            directory, _, name = os.path.join("/etc", pattern).rpartition("/")
            for each in fnmatch.filter(fs.listdir(directory), name):
                yield from _configured(fs, f"{directory}/{each}", depth + 1)


def _read(fs: Root, path: str) -> str:
    try:
        with fs.open(path) as file:
            return os.fsdecode(file.read(_MAX_CONF))
    except OSError:  # such a host has no file, or only the loader's cache
        return ""


def unsupported(fs: Root) -> str | None:
    """Return the key of the host's platform in `PLATFORMS`; None for any other platform."""
    if fs.is_directory("/usr/lib/wsl/lib") or fs.is_directory("/usr/lib/wsl/drivers"):
        return "WSL 2"
    tegra = ("/usr/lib/aarch64-linux-gnu/tegra", "/usr/lib/aarch64-linux-gnu/nvidia/tegra")
    model = re.search(r"nvidia,tegra", _read(fs, "/proc/device-tree/compatible"))
    if model or fs.is_file("/etc/nv_tegra_release") or any(fs.is_directory(path) for path in tegra):
        return "Jetson"
    return None
