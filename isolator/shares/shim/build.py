"""Build of our CUDA libraries: taken from the package or a cache by the digest of their sources, else
compiled.

They need only libc.so.6 of GLIBC_2.17 or newer, whatever they are built on: any C compiler will do. Without a
compiler, shares are enforced by other means or not at all, and everything else works.
"""

import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from isolator.shares.shim.sources import FLAGS, SOURCES, digest
from mesos_gpu.errors import Unavailable
from volumes.keys import REPLACED
from volumes.shim import Shim

COMPILERS: Final = ("cc", "gcc", "clang")
ZIG: Final = "ziglang==0.13.0.post1"  # a compiler for all machines in one wheel of PyPI (340 MB unpacked)
#: Sources of each library.
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "libcuda.so.1": (
        *(
            "symbols",
            "share",
            "accounts",
            "table",
            "process",
            "room",
            "pools",
            "physical",
            "graphs",
            "windows",
        ),
        *("entry", "entry_memory", "entry_physical", "entry_graphs", "entry_launches"),
    ),
    "libnvidia-ml.so.1": ("symbols", "share", "nvml"),
}
_COMPILE_S: Final = 120.0
_REMEDY: Final = (
    "apt-get install gcc libc6-dev, or name a compiler: MESOS_GPU_CC; then mesos-gpu node shim build"
)


def cache_directory(env: Mapping[str, str]) -> Path:
    """Return the directory of built libraries: MESOS_GPU_CACHE, else below the user's cache directory."""
    if named := env.get("MESOS_GPU_CACHE"):
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("mesos-gpu"))


def built(env: Mapping[str, str], machine: str | None = None) -> Shim | None:
    """Return the libraries if they are built for this version and this machine (as `uname -m`; None for this
    host's).
    """
    machine = machine or platform.machine()
    for directory in (SOURCES / "built" / machine, _cached(env, machine)):
        if (directory / "digest").is_file() and (directory / "digest").read_text() == digest():
            return _shim(directory)
    return None


def have(env: Mapping[str, str], machine: str | None = None, command: Sequence[str] | None = None) -> Shim:
    """Return the libraries; compile them if they are not built.

    Args:
        env: Environment with MESOS_GPU_CC and MESOS_GPU_CACHE.
        machine: Machine as for `built`; for another than this host's, `command` must be a cross compiler.
        command: Compiler with its arguments. By default this host's.

    Raises:
        Unavailable: There is no compiler, or it fails.
    """
    shim = built(env, machine)
    if shim is not None:
        return shim
    machine = machine or platform.machine()
    command = command or compiler(env)
    if command is None:
        names = ", ".join(COMPILERS)
        raise Unavailable(
            f"there is no C compiler ({names}) to build the libraries for shares", remedy=_REMEDY
        )
    target = _cached(env, machine)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        compile_into(target, command)
    except OSError as error:
        what = f"the cache {target.parent} cannot be written: {error}"
        raise Unavailable(what, remedy="set MESOS_GPU_CACHE to another directory") from error
    return _shim(target)


def compiler(env: Mapping[str, str]) -> list[str] | None:
    """Return MESOS_GPU_CC, which may have arguments, else the first of cc, gcc and clang; None if there is no
    compiler.
    """
    if named := env.get("MESOS_GPU_CC"):
        return shlex.split(named)
    path = next(filter(None, (shutil.which(name, path=env.get("PATH")) for name in COMPILERS)), None)
    return [path] if path else None


def zig(env: Mapping[str, str], machine: str) -> list[str]:
    """Return the command of a compiler for any machine, installed into the cache from PyPI if it is not
    there.

    Raises:
        Unavailable: It cannot be installed.
    """
    venv = cache_directory(env) / "zig"
    program = venv / "bin/python"
    target = f"{machine}-linux-gnu.2.17"
    command = [str(program), "-m", "ziglang", "cc", "-target", target]
    if (venv / "ready").exists():
        return command
    for step in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ZIG],
    ):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{ZIG} cannot be installed: {done.stderr.strip()}", remedy="check the network")
    (venv / "ready").touch()
    return command


def compile_into(target: Path, command: Sequence[str]) -> None:
    """Compile both libraries into a directory that appears complete, in place of one that exists.

    Raises:
        Unavailable: The compiler does not exist, or fails; the text has its output.
        OSError: The parent directory cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".shim-") as top:
        part = Path(top, "part")
        part.mkdir(mode=0o755)
        part.chmod(0o755)
        for _, name, real in REPLACED:
            _compile_one(part, name, real, command)
        (part / "digest").write_text(digest())
        if target.exists():
            target.rename(Path(top, "old"))
        part.rename(target)


def _compile_one(part: Path, name: str, real: str, command: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        # An empty library stands in for the driver's at link time, so that ours needs the name.
        empty = Path(scratch, "empty.c")
        empty.write_text("int mgpu_placeholder;\n")
        _run([*command, "-shared", "-fPIC", f"-Wl,-soname,{real}", "-o", f"{scratch}/{real}", str(empty)])
        sources = [str(SOURCES / f"{file}.c") for file in FILES[name]]
        _run([*command, *FLAGS, f"-Wl,-soname,{name}", "-o", str(part / name), *sources, f"{scratch}/{real}"])
    (part / name).chmod(0o644)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    except FileNotFoundError as error:
        raise Unavailable(f"there is no compiler {command[0]}", remedy=_REMEDY) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not end in {_COMPILE_S:.0f} s", remedy=_REMEDY) from error
    if done.returncode:
        raise Unavailable(
            f"{command[0]} cannot build the libraries for shares: {done.stderr}", remedy=_REMEDY
        )


def _cached(env: Mapping[str, str], machine: str) -> Path:
    return cache_directory(env) / "shim" / f"{digest()[:16]}-{machine}"


def _shim(directory: Path) -> Shim:
    (_, cuda, _), (_, nvml, _) = REPLACED
    return Shim(digest(), str(directory / cuda), str(directory / nvml))
