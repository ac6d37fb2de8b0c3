"""Files of directories that running processes write to and remove."""

import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(top: Path) -> Iterator[Path]:
    """Yield all paths below a directory, of any kind; those that vanish meanwhile are passed over, where `Path.rglob`
    fails."""
    for directory, directories, files in os.walk(top):
        yield from map(Path(directory).joinpath, (*directories, *files))
