"""The library of Mesos where a directory of its path is a link."""

import subprocess
from pathlib import Path

from mesos_gpu.libmesos import fetch
from mesos_gpu.libmesos.helpers import ROOT, python

FILLED = f"""\
import sys
sys.path.insert(0, {ROOT!r})
from mesos_gpu.libmesos.cxx import Mesos
Mesos(sys.argv[1]).do_without_curl()
"""


def test_library_behind_a_link_gets_functions_that_it_lacks(tmp_path: Path) -> None:
    library = Path(fetch.libmesos())
    (tmp_path / "cache").symlink_to(library.parent)
    done = subprocess.run(
        [python(), "-ISc", FILLED, tmp_path / "cache" / library.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
