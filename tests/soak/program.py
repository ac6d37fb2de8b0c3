"""The program that a soak's node monitors are started from: another one can lie there at any time."""

import hashlib
import os
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_MAIN: Final = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from isolator.__main__ import main; sys.exit(main())"
)


class Program:
    """An archive that runs this checkout's monitor. Each has a number, so that no two are of the same bytes."""

    def __init__(self, path: Path) -> None:
        """Write the first. `path`: of the archive, where every host finds it."""
        self._path, self._number = path, 0
        self.replace()

    @property
    def command(self) -> str:
        """What agents start, for a shell."""
        return f"exec {shlex.join([sys.executable, '-I', str(self._path), 'monitor'])}"

    @property
    def digest(self) -> str:
        """The SHA-256, hexadecimal, of the archive there is now: what a monitor that runs from it reports."""
        return hashlib.sha256(self._path.read_bytes()).hexdigest()

    def replace(self) -> None:
        """Put the next one there."""
        self._number += 1
        new = self._path.with_suffix(".new")
        with zipfile.ZipFile(new, "w") as archive:
            archive.writestr("__main__.py", f"{_MAIN}  # {self._number}\n")
        os.replace(new, self._path)
