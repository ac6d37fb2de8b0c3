"""The driver version of a host: the kernel module must agree with the libraries, or no volume is built."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Conflict, NotFound, Unavailable
from volumes.manifest import DRIVER_VERSION, is_core_library, stem_of, versions
from volumes.model import DriverFiles
from volumes.places import LIBRARY_OPTION, LIBRARY_PATH, PLATFORMS, unsupported
from volumes.roots import Root

#: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu …", and of the open module
#: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build …".
_NVRM: Final = re.compile(r"^NVRM version:.*?\s(\d{2,4}\.\d+(?:\.\d+)*)(?:\s|$)", re.MULTILINE)


_WHERE: Final = (
    f"name their directory: {LIBRARY_OPTION}, for a node {LIBRARY_PATH} (another root: --root, "
    "MESOS_GPU_DRIVER_ROOT)"
)


def kernel_version(root: Path = Path("/")) -> str | None:
    """Return the version of the loaded kernel module, from /proc or /sys; None if no module is loaded."""
    fs = Root(root)
    for path in ("/proc/driver/nvidia/version", "/sys/module/nvidia/version"):
        text = fs.read_bytes(path).decode(errors="replace") if fs.is_file(path) else ""
        match = _NVRM.search(text) if path.startswith("/proc") else re.match(r"\s*(\d+(?:\.\d+)+)\s*$", text)
        if match:
            return match[1]
    return None


def driver_version(root: Path, files: DriverFiles, asked: str | None = None, nvml: str | None = None) -> str:
    """Return the driver version for which to build a volume.

    Args:
        root: Root of the host, with its /proc and /sys.
        files: Driver files that were discovered below that root.
        asked: Version that an operator asks for. Its libraries must be there, but its driver need not be
            loaded yet.
        nvml: Version that NVML reports on this very host; None if NVML was not asked.

    Raises:
        Conflict: The kernel module, NVML and the libraries do not agree.
        NotFound: No driver, or not the requested one, was discovered.
        Unavailable: The driver of this platform is of a kind that is not supported.
    """
    there = versions(files)
    kernel = kernel_version(root)
    see_platform(root, kernel, lambda: files)
    if asked is not None:
        if asked in there:
            return asked
        raise NotFound(
            f"no library of driver {asked} was found; {_said(there, files)}",
            remedy=f"name one that is there, or {_WHERE}",
        )
    if kernel is not None and nvml is not None and kernel != nvml:
        raise Conflict(
            f"the kernel module is of driver {kernel}, and NVML says {nvml}",
            remedy="end what uses the GPUs and reload the kernel module, or reboot",
        )
    running = kernel or nvml
    if running is not None:
        if running in there:
            return running
        raise Conflict(
            f"the kernel module is of driver {running}, but its libraries were not found; {_said(there, files)}",
            remedy=(
                f"if driver {there[-1]} was installed after the module was loaded: end what uses the GPUs and reload "
                f"the module, or reboot; if the libraries of {running} are in another directory: {_WHERE}"
                if there
                else f"install the libraries of driver {running}; if they are on this host: {_WHERE}"
            ),
        )
    if len(there) == 1:
        return there[0]
    if not there:
        raise NotFound(
            f"no NVIDIA driver was found: neither a kernel module nor libraries{_refused(files)}",
            remedy=f"install the driver; if it is on this host: {_WHERE}",
        )
    raise Conflict(
        f"no loaded kernel module shows which of these drivers runs: {', '.join(there)}",
        remedy="name one: --driver-version",
    )


def see_platform(root: Path, kernel: str | None, find: Callable[[], DriverFiles]) -> None:
    """Check that the platform's driver is supported, or that a supported driver lies beside the platform's
    own.

    Args:
        root: Root of the host.
        kernel: Version of the loaded kernel module; None if none is loaded.
        find: Function that finds the libraries, called if the platform has a driver of its own.

    Raises:
        Unavailable: The platform is not supported.
    """
    platform = unsupported(Root(root))
    if platform is None:
        return
    usual = any(stem_of(f.name) == "libcuda" and DRIVER_VERSION.search(f.name) for f in find().libraries)
    if not usual or (platform == "WSL 2" and kernel is None):
        raise Unavailable(
            f"{platform} is not supported: {PLATFORMS[platform]}",
            remedy="use a host with NVIDIA's driver for Linux on servers and desktops",
        )


def _said(there: tuple[str, ...], files: DriverFiles) -> str:
    text = f"there are those of {', '.join(there)}" if there else "there are none of any version"
    return text + _refused(files)


def _refused(files: DriverFiles) -> str:
    """Return the first core library that is refused, with the reason, as the end of a sentence; "" if none is."""
    refused = (
        each for each in files.unreadable if each.warned and is_core_library(each.path.rpartition("/")[2])
    )
    return next((f"; {each.path} is left out: {each.reason}" for each in refused), "")
