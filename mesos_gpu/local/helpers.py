"""The programs that Mesos runs by name, and how the cluster starts its own: this interpreter, bare.

-I -S: no site-packages and no user's settings; it starts in some 10 ms instead of 100.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import mesos_gpu
from mesos_gpu.local import fetch

#: Directory that holds the package, for sys.path.
ROOT: Final = str(Path(mesos_gpu.__file__).resolve().parent.parent)
#: The byte that a program of the cluster waits for on its standard input.
GO: Final = b"\n"
_SCRIPT: Final = """#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from mesos_gpu.local.containerizer import main
sys.exit(main({library!r}, sys.argv, {cgroup2!r}))
"""
_FETCHER: Final = """#!{python} -IS
import sys
sys.path.insert(0, {root!r})
from mesos_gpu.local.fetcher import main
sys.exit(main())
"""
_PROGRAM: Final = """
import os, sys
os.read(0, 1) or sys.exit("its owner is gone")
sys.path.insert(0, {root!r})
from mesos_gpu.local.{module} import main
sys.exit(main({library!r}, sys.argv[1:]))
"""


def python() -> str:
    """The interpreter itself: not a virtual environment's link, and not a slow shim."""
    return os.path.realpath(sys.executable)


def command(module: str, flags: Mapping[str, str]) -> list[str]:
    """How to start the program `mesos_gpu.local.<module>`; it goes on when it reads GO."""
    code = _PROGRAM.format(root=ROOT, module=module, library=str(fetch.library_path()))
    return [python(), "-ISc", code, *(f"--{name}={value}" for name, value in flags.items())]


def write(directory: Path, library: Path, cgroup2: str = "") -> None:
    """Fill the launcher_dir. The agent needs no other programs: every task has a custom executor.
    cgroup2: as of `containerizer.main`."""
    directory.mkdir()
    directory.chmod(0o755)
    scripts = {
        "mesos-containerizer": _SCRIPT.format(
            python=python(), root=ROOT, library=str(library), cgroup2=cgroup2
        ),
        "mesos-fetcher": _FETCHER.format(python=python(), root=ROOT),
    }
    for name, text in scripts.items():
        path = directory / name
        path.write_text(text)
        path.chmod(0o755)
