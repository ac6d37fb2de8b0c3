"""The programs that Mesos runs by name, and how the cluster starts its own: this interpreter, bare.

-I -S: no site-packages and no user's settings; it starts in some 10 ms instead of 100.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import mesos_gpu
from mesos_gpu.libmesos import fetch

#: Directory that holds the package, for sys.path.
ROOT: Final = str(Path(mesos_gpu.__file__).resolve().parent.parent)
#: The byte that a program of the cluster waits for on its standard input.
GO: Final = b"\n"
_SCRIPT: Final = """#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from mesos_gpu.libmesos.containerizer import main
sys.exit(main({library!r}, sys.argv, {cgroup2!r}))
"""
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
    """The interpreter itself: not a virtual environment's link, and not a slow shim."""
    return os.path.realpath(sys.executable)


def command(module: str, argv: Iterable[str]) -> list[str]:
    """How to start the program `mesos_gpu.libmesos.<module>`."""
    return [python(), "-ISc", _program(module), *argv]


def gated_command(module: str, flags: Mapping[str, str]) -> list[str]:
    """How to start the program `mesos_gpu.libmesos.<module>` so that it goes on when it reads GO."""
    argv = (f"--{name}={value}" for name, value in flags.items())
    return [python(), "-ISc", _GATE + _program(module), *argv]


def _program(module: str) -> str:
    return _PROGRAM.format(root=ROOT, module=module, library=str(fetch.library_path()))


def write(directory: Path, library: Path, cgroup2: str = "") -> None:
    """Fill the launcher_dir, also that of an agent that runs. The agent needs no other programs: every task has a
    custom executor. cgroup2: as of `containerizer.main`."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    scripts = {
        "mesos-containerizer": _SCRIPT.format(
            python=python(), root=ROOT, library=str(library), cgroup2=cgroup2
        ),
        "mesos-fetcher": _FETCHER.format(python=python(), root=ROOT),
    }
    for name, text in scripts.items():
        new = directory / f".{name}.new"
        new.unlink(missing_ok=True)
        new.write_text(text)
        new.chmod(0o755)
        new.rename(directory / name)
