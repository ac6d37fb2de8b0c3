"""Installation of libmesos: download the distribution, verify it, unpack and patch it, once for each user."""

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final, Self

from mesos_gpu.errors import Damaged, Unavailable

PROJECT: Final = "mesos.scheduler"
EGG: Final = "mesos.scheduler-1.11.0-py2.7-linux-x86_64.egg"
EGG_SHA256: Final = "4940ebb70894ee004cf8a12b7b66b52a351be1070ec2a4e6f7dae4ec04f8cb61"
MEMBER: Final = "mesos/scheduler/_scheduler.so"
LIBRARY: Final = "libmesos-1.11.0.so"
LIBRARY_SHA256: Final = "bcd3245576a338258225014f41919674d8f7edeaceb64620be0dee82c4b01f68"
#: System libraries that the library needs, with their Debian packages.
NEEDED: Final = {"libsasl2.so.2": "libsasl2-2", "libz.so.1": "zlib1g", "libstdc++.so.6": "libstdc++6"}

#: Directories in which Debian's libsasl2-2 looks for mechanisms; libcrammd5 is in libsasl2-modules.
_SASL: Final = ("usr/lib/x86_64-linux-gnu/sasl2", "usr/lib64/sasl2", "usr/lib/sasl2")
_MECHANISM: Final = "libcrammd5.so"

#: CA bundles of Debian's and Red Hat's hosts.
_AUTHORITIES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def cache_directory() -> Path:
    """Return the directory of MESOS_GPU_CACHE, or else the user's cache directory."""
    named = os.environ.get("MESOS_GPU_CACHE")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("mesos-gpu"))


def library_path(cache: Path | None = None) -> Path:
    """Return the path at which the library is, or will be."""
    return (cache or cache_directory()) / LIBRARY


def libmesos(cache: Path | None = None) -> Path:
    """Return the path of the loadable library; it is downloaded and patched if the cache lacks it.

    Raises:
        Unavailable: The machine is not supported, a system library is missing, or the package index cannot be reached.
        Damaged: The cached file or the download has a wrong digest.
    """
    check_machine(platform.system(), platform.machine(), _libc())
    check_system_libraries()
    path = library_path(cache)
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path, egg(path.parent))
        except OSError as error:
            what = f"the cache {path.parent} cannot be written: {error}"
            raise Unavailable(what, remedy="set MESOS_GPU_CACHE to another directory") from error
    _check(path, LIBRARY_SHA256)
    return path


def _libc() -> str:
    """Return name and version of the C library, as "glibc 2.36"; "" for another one, such as musl."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # only the GNU C library has this name
        return ""


def check_machine(system: str, machine: str, libc: str) -> None:
    """Refuse machines for which the library was not built. `libc`: name and version, as "glibc 2.36".

    Raises:
        Unavailable: The machine is not Linux on x86-64 with the GNU C library 2.17 or later.
    """
    remedy = "run it on a current Debian, Ubuntu or Red Hat system on x86_64"
    if (system, machine) != ("Linux", "x86_64"):
        what = f"the embedded Mesos is built for Linux on x86_64; this is {system} on {machine}"
        raise Unavailable(what, remedy=remedy)
    name, _, version = libc.partition(" ")
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < (2, 17):
        present = libc or "another one"
        what = f"the embedded Mesos needs the GNU C library 2.17 or later; this system has {present}"
        raise Unavailable(what, remedy=remedy)


def check_system_libraries(needed: dict[str, str] | None = None) -> None:
    """Refuse a system without the libraries that libmesos links to.

    Raises:
        Unavailable: Libraries are missing; the remedy is the command that installs them.
    """
    missing = []
    for name, package in (needed or NEEDED).items():
        try:
            ctypes.CDLL(name)
        except OSError:
            missing.append((name, package))
    if missing:
        raise Unavailable(
            f"Mesos needs {', '.join(name for name, _ in missing)}, which this system lacks",
            remedy=f"apt-get install -y {' '.join(package for _, package in missing)}",
        )


def check_mechanism(root: Path = Path("/")) -> None:
    """Check that agents can authenticate to masters.

    Raises:
        Unavailable: libsasl2 has no CRAM-MD5 mechanism.
    """
    if not any((root / place / _MECHANISM).exists() for place in _SASL):
        raise Unavailable(
            f"agents cannot authenticate: SASL's {_MECHANISM} is not installed",
            remedy="apt-get install -y libsasl2-modules",
        )


def sha256(path: Path) -> str:
    """Return the hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.lru_cache(maxsize=8)
def _digest(path: Path, _state: tuple[int, ...]) -> str:
    """Return the digest of a file, cached by its state: a process that starts many clusters reads 120 MB once."""
    return sha256(path)


def _check(path: Path, expected: str) -> None:
    status = path.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    actual = _digest(path, state)
    if actual != expected:
        raise Damaged(
            f"{path} has sha256 {actual}, expected {expected}",
            remedy=f"remove it and try again: rm {path}",
        )


def egg(cache: Path) -> Path:
    """Return the path of the verified distribution in `cache`; it is downloaded if missing."""
    path = cache / EGG
    if not path.exists():
        fd, name = tempfile.mkstemp(dir=cache, prefix=".download-")
        os.close(fd)
        part = Path(name)
        try:
            _download(part)
            _check(part, EGG_SHA256)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
    _check(path, EGG_SHA256)
    return path


def _download(target: Path) -> None:
    """Download the distribution from the package index that pip uses."""
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT, DigestMismatchError, NoSuchProjectError, PyPISimple

    pip = pip_settings()
    session = requests.Session()
    session.verify = pip.get("cert") or _authorities()
    try:
        with PyPISimple(pip.get("index-url", PYPI_SIMPLE_ENDPOINT), session=session) as index:
            page = index.get_project_page(PROJECT)
            package = next(p for p in page.packages if p.filename == EGG)
            index.download_package(package, target, verify=True, progress=_Progress)
    except DigestMismatchError as error:
        raise Damaged(f"the download of {EGG} was damaged on the way: {error}", remedy="try again") from error
    except (requests.RequestException, NoSuchProjectError, StopIteration) as error:
        raise Unavailable(
            f"cannot download {EGG} from the package index: {error!r}",
            remedy="check the network; or put the file into the directory that MESOS_GPU_CACHE names",
        ) from error


def _authorities() -> str | bool:
    """Return the CA bundle of this host, which may include a company's authority; True for the one of requests.

    REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE take precedence over both.
    """
    return next((path for path in _AUTHORITIES if Path(path).is_file()), True)


def pip_settings() -> dict[str, str]:
    """Return index-url and cert of this machine's pip, if its environment or configuration sets them.

    Where pip reaches its index through a company's mirror or proxy, this download does too.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():  # global.cert='/etc/ssl/certs/ca.pem', or :env:.cert=…
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in ("index-url", "cert"):
            settings.setdefault(key, value.strip("'\""))
    return settings


class _Progress:
    """pypi_simple's ProgressTracker: a bar on a terminal, one line elsewhere."""

    def __init__(self, total_bytes: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = (TextColumn("Downloading Apache Mesos 1.11.0"), BarColumn(), DownloadColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total_bytes)
        if not console.is_terminal:
            print("Downloading Apache Mesos 1.11.0 (27 MB, once)", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, increment: int) -> None:
        """Advance the bar by `increment` bytes."""
        self._bar.advance(self._task, increment)


def _make(path: Path, source: Path) -> None:
    """Write the patched library beside `path`, verify it, and move it there."""
    from mesos_gpu.libmesos import patch_elf

    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".patch-")
    part = Path(name)
    try:
        with os.fdopen(fd, "wb") as file, zipfile.ZipFile(source) as archive:
            file.write(archive.read(MEMBER))
        patch_elf.patch(part)
        _check(part, LIBRARY_SHA256)
        part.chmod(0o755)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
