"""Files of NVIDIA's real user-space driver from Debian's packages, unpacked into a directory.

This project contains no files of NVIDIA: driver_packages.json names packages of Debian's archive with their SHA-256.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs
import requests

from mesos_gpu.errors import Unavailable
from tests.doubles.elf_files import ldconfig

#: The second mirror has packages that the first has replaced; the third has a C library of 2018.
MIRRORS: Final = (
    "http://deb.debian.org/debian",
    "https://snapshot.debian.org/archive/debian/20251101T000000Z",
    "http://archive.ubuntu.com/ubuntu",
)
#: Seconds to connect, and between two parts of an answer: short enough that a test can still report silent mirrors.
TIMEOUT_S: Final = (5.0, 20.0)
#: The whole driver of Debian 12; without "large" (OptiX and ray tracing) it is 79 MB instead of 228.
CURRENT: Final = "535.261.03"
ALL: Final = (CURRENT, f"{CURRENT} large", "glvnd")
NEXT: Final = "550.163.01"
OLD_GLIBC: Final = "glibc 2.27"  # of Ubuntu 18.04
_TRIPLETS: Final = (
    "x86_64-linux-gnu",
    "i386-linux-gnu",
    "aarch64-linux-gnu",
    "powerpc64le-linux-gnu",
)
#: Alternatives that are not directly in the directory of libraries.
_ELSEWHERE: Final = {"libnvidia-cfg.so.1": "nvidia", "libvdpau_nvidia.so.1": "vdpau"}
#: One of these, which glx-alternative-nvidia (required by nvidia-alternative) also links in the directory of libraries.
_AGAIN: Final = "libnvidia-cfg.so.1"


@dataclass(frozen=True, slots=True)
class Package:
    """A package of Debian's archive; `path` is its path on a mirror."""

    path: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """File name of the package."""
        return self.path.rpartition("/")[2]


def packages(*sets: str) -> list[Package]:
    """List the packages of sets in driver_packages.json, such as "535.261.03" and "535.261.03 large"."""
    listed = json.loads(Path(__file__).with_suffix(".json").read_text())
    return [Package(**each) for name in sets for each in listed[name]]


def fetch(*sets: str, only: Collection[str] = ()) -> list[Path]:
    """Return the files of packages, which are downloaded if the cache lacks them or has damaged ones.

    Args:
        sets: Names of sets, for `packages`.
        only: Names of packages to fetch, or empty for all packages of the sets.

    Raises:
        Unavailable: No mirror has a package.
    """
    given = os.environ.get("MESOS_GPU_TEST_CACHE")
    cache = Path(given) if given else platformdirs.user_cache_path("mesos-gpu") / "driver-packages"
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as pool:
        wanted = [each for each in packages(*sets) if not only or each.name.partition("_")[0] in only]
        return list(pool.map(lambda package: _fetched(package, cache), wanted))


def _fetched(package: Package, cache: Path) -> Path:
    path = cache / package.name
    if path.exists() and _is(package, path.read_bytes()):
        return path
    said = []
    for mirror in MIRRORS:
        try:
            answer = requests.get(f"{mirror}/{package.path}", timeout=TIMEOUT_S)
            answer.raise_for_status()
        except requests.RequestException as error:
            said.append(str(error))
            continue
        if _is(package, answer.content):
            part = cache / f".{package.name}.{os.getpid()}"
            part.write_bytes(answer.content)
            part.replace(path)
            return path
        said.append(f"{mirror} has another {package.name}")
    raise Unavailable(
        f"Debian's packages cannot be reached: {'; '.join(said)}",
        remedy=f"put {package.name} into {cache}",
    )


def _is(package: Package, content: bytes) -> bool:
    return len(content) == package.size and hashlib.sha256(content).hexdigest() == package.sha256


def install(root: Path, *sets: str, only: Collection[str] = ()) -> None:
    """Unpack packages into a root directory, create the alternatives of Debian's scripts, and run ldconfig.

    Args:
        root: Directory of the root file system.
        sets: Names of sets, for `fetch`.
        only: Names of packages, for `fetch`.

    Raises:
        Unavailable: No mirror has a package, or dpkg-deb is missing.
    """
    tool = shutil.which("dpkg-deb")
    if tool is None:
        raise Unavailable("there is no dpkg-deb", remedy="install dpkg")
    files = fetch(*sets, only=only)
    root.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda file: _unpack(tool, file, root), files))
    for link, target in _alternatives(root):
        _link(root, link, target)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text("".join(f"/usr/lib/{triplet}\n" for triplet in _TRIPLETS))
    ldconfig(root)


def _unpack(tool: str, file: Path, root: Path) -> None:
    done = subprocess.run([tool, "-x", file, root], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Unavailable(f"{file} cannot be unpacked: {done.stderr}", remedy="remove it")


def _alternatives(root: Path) -> Iterator[tuple[str, str]]:
    """Yield link and target of the alternatives of the packages nvidia-alternative and glx-alternative-nvidia."""
    for triplet in _TRIPLETS:
        top = f"/usr/lib/{triplet}"
        for path in sorted(root.glob(f"{top[1:]}/nvidia/*/lib*.so*")):
            if path.is_symlink() and (path.name == "libcuda.so" or not path.name.endswith(".so")):
                below = "/".join(filter(None, (top, _ELSEWHERE.get(path.name))))
                yield f"{below}/{path.name}", f"/{path.relative_to(root)}"
                if path.name == _AGAIN:
                    yield f"{top}/{path.name}", f"{below}/{path.name}"
    for name in ("nvidia-smi", "nvidia-debugdump"):
        for path in sorted(root.glob(f"usr/lib/nvidia/*/{name}")):
            yield f"/usr/bin/{name}", f"/{path.relative_to(root)}"


def _link(root: Path, link: str, target: str) -> None:
    """Create an absolute link through /etc/alternatives, as update-alternatives does."""
    middle = f"/etc/alternatives/nvidia--{link.strip('/').replace('/', '-')}"
    for at, to in ((link, middle), (middle, target)):
        place = root / at.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(to)
