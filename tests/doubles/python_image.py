"""A Docker image with Python, a shell and glibc, built from files of this machine without a registry."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Unavailable
from tests.doubles.dockerd import busybox
from tests.doubles.images import busybox_layer, layer, save

#: Configuration of an image that needs the driver, as NVIDIA's images have it.
WANTS_DRIVER: Final = {
    "Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=99.0"],
    "Labels": {"com.nvidia.volumes.needed": "nvidia_driver"},
}
_PACKAGES: Final = ("collections", "ctypes", "encodings", "importlib", "json", "re")
_MODULES: Final = ("_ctypes", "_struct", "_json", "_posixsubprocess", "select", "math", "fcntl", "grp")
_LIBRARIES: Final = "lib/x86_64-linux-gnu"  # where Debian's loader looks without a cache
#: Content of /etc/ld.so.conf, which mounts must not change.
LOADER_CONF: Final = f"/{_LIBRARIES}\n"
#: Libraries of glibc and GCC that programs may load later.
_ALWAYS: Final = (
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libgcc_s.so.1",
)


def python_image(directory: Path, name: str, libraries: Iterable[Path] = ()) -> Path:
    """Write `<directory>/<name>.tar` for x86_64, under 40 MB.

    Args:
        directory: Directory of the archive.
        name: Name of the image.
        libraries: Further libraries that it has, where its loader finds them.

    Raises:
        Unavailable: There is no static busybox, or no ldd.
    """
    base = busybox_layer(busybox(), ["sh", "ls", "cat", "env", "id"])
    more = layer({f"{_LIBRARIES}/{path.name}": path.read_bytes() for path in libraries})
    return save(directory, name, [base, python_layer(_PACKAGES, _MODULES), more], WANTS_DRIVER)


def python_layer(packages: Iterable[str], modules: Iterable[str]) -> bytes:
    """Return a layer with this Python as `/usr/bin/python3`, whose home is `/usr`.

    Args:
        packages: Packages of the standard library; all of its single modules are included.
        modules: Extension modules in shared libraries; built-in ones are ignored.

    Raises:
        Unavailable: There is no ldd.
    """
    program = Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]
    stdlib = Path(sysconfig.get_path("stdlib"))
    home = f"usr/lib/{stdlib.name}"
    files: dict[str, bytes] = {"usr/bin/python3": program.read_bytes()}
    sources = [*stdlib.glob("*.py"), *(p for name in packages for p in (stdlib / name).rglob("*.py"))]
    files |= {f"{home}/{path.relative_to(stdlib)}": path.read_bytes() for path in sources}
    shared = [p for each in modules for p in (stdlib / "lib-dynload").glob(f"{each}.*.so")]
    files |= {f"{home}/lib-dynload/{path.name}": path.read_bytes() for path in shared}
    for library in _closure([program, *shared]):
        files[f"{_LIBRARIES}/{library.name}"] = library.read_bytes()
    files["lib64/ld-linux-x86-64.so.2"] = Path("/lib64/ld-linux-x86-64.so.2").read_bytes()
    files["etc/ld.so.conf"] = LOADER_CONF.encode()
    return layer(files)


def _closure(files: list[Path]) -> set[Path]:
    """Return the libraries that files need, and those that every image has."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, timeout=30)
    libraries = {Path(path) for path in re.findall(r"=> (/\S+)", done.stdout)}
    libc = next((path for path in libraries if path.name == "libc.so.6"), None)
    if libc is None:
        raise Unavailable(f"ldd does not tell what Python needs: {done.stderr}", remedy="install libc-bin")
    return libraries | {libc.parent / name for name in _ALWAYS}
