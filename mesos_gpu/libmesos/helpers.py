"""Programs that Mesos runs by name, and commands by which the cluster starts its own, with a bare interpreter.

With -I -S, without site-packages and user settings, an interpreter starts in some 10 ms instead of 100.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import mesos_gpu
from mesos_gpu.install import flat
from mesos_gpu.libmesos import fetch
from mesos_gpu.libmesos.launching import EXECUTOR

#: Directory that contains the package, for sys.path.
ROOT: Final = str(Path(mesos_gpu.__file__).resolve().parent.parent)
_SCRIPT: Final = """#!{python} -IS
{begin}
from mesos_gpu.libmesos.launching import main
sys.exit(main({library!r}, sys.argv, {cgroup2!r}, {executor!r}))
"""
_EXECUTOR: Final = """#!{python} -IS
{begin}
sys.argv[1:] = ["executor"]
from isolator.__main__ import main
sys.exit(main())
"""
#: Modules that the first two scripts import, and those that each executor imports later.
STARTS: Final = ("mesos_gpu.libmesos.launching", *flat.EXECUTOR)
_FETCHER: Final = """#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from mesos_gpu.libmesos.fetcher import main
sys.exit(main())
"""
_GATE: Final = 'import os, sys\nos.read(0, 1) or sys.exit("its owner is gone")\n'
_PROGRAM: Final = """
import sys
sys.path.insert(0, {root!r})
from mesos_gpu.libmesos.{module} import main
sys.exit(main({library!r}, sys.argv[1:]))
"""


def python() -> str:
    """Return the path of the interpreter itself: not a virtual environment's link, and not a slow shim."""
    return os.path.realpath(sys.executable)


def command(module: str, argv: Iterable[str]) -> list[str]:
    """Return the command that starts the program `mesos_gpu.libmesos.<module>`."""
    return [python(), "-ISc", _program(module), *argv]


def gated_command(module: str, flags: Mapping[str, str]) -> list[str]:
    """Return the command that starts the program `mesos_gpu.libmesos.<module>`, which waits until it reads GO."""
    argv = (f"--{name}={value}" for name, value in flags.items())
    return [python(), "-ISc", _GATE + _program(module), *argv]


def _program(module: str) -> str:
    return _PROGRAM.format(root=ROOT, module=module, library=str(fetch.library_path()))


def executor_command(directory: Path) -> str:
    """Return the shell command of this installation's executor, for agents with that launcher_dir."""
    return f"exec {shlex.join((python(), '-IS', str(directory / EXECUTOR)))}"


def write(directory: Path, library: Path, cgroup2: str = "") -> None:
    """Write the helper programs into a launcher_dir, also into that of a running agent.

    The agent needs no other programs: every task has a custom executor. `cgroup2`: prefix of the agents' cgroups v2, as
    for `containerizer.main`.
    """
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    begin = flat.begin(str(directory / flat.NAME), ROOT)
    _put(directory / flat.NAME, flat.kept(Path(ROOT), STARTS, fetch.cache_directory() / "flat"), 0o644)
    scripts = {
        "mesos-containerizer": _SCRIPT.format(
            python=python(),
            begin=begin,
            library=str(library),
            cgroup2=cgroup2,
            executor=executor_command(directory),
        ),
        "mesos-fetcher": _FETCHER.format(python=python(), root=ROOT),
        EXECUTOR: _EXECUTOR.format(python=python(), begin=begin),
    }
    for name, text in scripts.items():
        _put(directory / name, text.encode(), 0o755)


def _put(path: Path, data: bytes, mode: int) -> None:
    """Write a file atomically: other processes never see half of it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.write_bytes(data)
    new.chmod(mode)
    new.rename(path)
